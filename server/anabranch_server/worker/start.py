"""From the command line of a worker process to its exit code."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import uvloop

from anabranch_server.logs import configure_logs
from anabranch_server.processes.boot import Boot, read_boot
from anabranch_server.worker.allocator import map_large_blocks
from anabranch_server.worker.process import WorkerProcess

__all__ = ["run_worker"]

_log = logging.getLogger(__name__)


def run_worker(argv: Sequence[str]) -> int:
    """Serve until told to stop, and return the exit code. Main thread.

    A first SIGTERM or SIGINT drains, a second one ends the process at once with exit code 1.

    Args:
        argv: `sys.argv`: the program and the number of the descriptor of a boot document.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
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
    _catch_signals(process)
    return await process.run()


def _catch_signals(process: WorkerProcess) -> None:
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if caught:
            os._exit(1)
        caught.append(number)
        _log.info("%s", number.name, extra={"event": "signal"})
        process.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: nobody is served yet."""
    os._exit(0)
