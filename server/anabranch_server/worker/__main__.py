"""Starts a worker: `python -m anabranch_server.worker FD`, by the launcher alone."""

import sys

from anabranch_server.worker.start import run_worker

if __name__ == "__main__":
    sys.exit(run_worker(sys.argv))
