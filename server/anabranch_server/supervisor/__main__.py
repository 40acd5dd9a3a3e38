"""Starts a supervisor: `python -m anabranch_server.supervisor FD`, by the launcher alone."""

import sys

from anabranch_server.supervisor.start import run_supervisor

if __name__ == "__main__":
    run_supervisor(sys.argv)
