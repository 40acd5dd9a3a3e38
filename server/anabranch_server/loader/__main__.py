"""`python -m anabranch_server.loader FD`: see docs/processes.md."""

import sys

from anabranch_server.loader.process import run_loader
from anabranch_server.processes.boot import read_boot

if __name__ == "__main__":
    run_loader(read_boot(sys.argv))
