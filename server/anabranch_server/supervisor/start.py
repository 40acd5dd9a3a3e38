"""From the command line of a supervisor process to its exit code."""

import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import uvloop

from anabranch_server.logs import configure_logs
from anabranch_server.processes.boot import Boot, read_boot
from anabranch_server.processes.leaving import leave_on_signals
from anabranch_server.processes.stopping import drain_on_signals
from anabranch_server.supervisor.process import SupervisorProcess

__all__ = ["run_supervisor"]


def run_supervisor(argv: Sequence[str]) -> NoReturn:
    """Look after the server until told to stop, and end the process. Main thread.

    A first SIGTERM or SIGINT drains, a second one ends the process at once with exit code 1.

    Args:
        argv: `sys.argv`: the program and the number of the descriptor of a boot document.
    """
    leave_on_signals()
    boot = read_boot(argv)
    configure_logs(boot.config.logs, "supervisor")
    uvloop.run(_supervise(boot))
    raise AssertionError("the process has ended")


async def _supervise(boot: Boot) -> NoReturn:
    process = SupervisorProcess(boot)
    drain_on_signals(process.stop)
    exit_code = await process.run()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(exit_code)  # a thread that waits for a slow file system must not be waited for
