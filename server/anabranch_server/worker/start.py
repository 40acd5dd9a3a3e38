"""From the command line of a worker process to its exit code."""

import logging
import os
import sys
from collections.abc import Sequence

import uvloop

from anabranch_server.logs import configure_logs
from anabranch_server.processes.boot import Boot, read_boot
from anabranch_server.processes.leaving import leave_on_signals
from anabranch_server.processes.stopping import drain_on_signals
from anabranch_server.worker.allocator import map_large_blocks
from anabranch_server.worker.process import WorkerProcess

__all__ = ["run_worker"]


def run_worker(argv: Sequence[str]) -> int:
    """Serve until told to stop, and return the exit code. Main thread.

    A first SIGTERM or SIGINT drains, a second one ends the process at once with exit code 1.

    Args:
        argv: `sys.argv`: the program and the number of the descriptor of a boot document.
    """
    leave_on_signals()
    map_large_blocks()
    boot = read_boot(argv)
    configure_logs(boot.config.logs, boot.index)
    if boot.config.runtime.gil_switch_interval_s is not None:
        sys.setswitchinterval(boot.config.runtime.gil_switch_interval_s)
    exit_code, is_clean = uvloop.run(_serve(boot))
    if not is_clean:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(exit_code)  # threads inside native code must not meet a closing interpreter
    return exit_code


async def _serve(boot: Boot) -> tuple[int, bool]:
    process = WorkerProcess(boot)
    drain_on_signals(process.stop)
    return await process.run()
