"""From the command line of a supervisor process to its exit code."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import uvloop

from anabranch_server.logs import configure_logs
from anabranch_server.processes.boot import Boot, read_boot
from anabranch_server.supervisor.process import SupervisorProcess

__all__ = ["run_supervisor"]

_log = logging.getLogger(__name__)


def run_supervisor(argv: Sequence[str]) -> NoReturn:
    """Look after the server until told to stop, and end the process. Main thread.

    A first SIGTERM or SIGINT drains, a second one ends the process at once with exit code 1.

    Args:
        argv: `sys.argv`: the program and the number of the descriptor of a boot document.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    boot = read_boot(argv)
    configure_logs(boot.config.logs, "supervisor")
    uvloop.run(_supervise(boot))
    raise AssertionError("the process has ended")


async def _supervise(boot: Boot) -> NoReturn:
    process = SupervisorProcess(boot)
    _catch_signals(process)
    exit_code = await process.run()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(exit_code)  # a thread that waits for a slow file system must not be waited for


def _catch_signals(process: SupervisorProcess) -> None:
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
    """End at once: nothing was begun yet."""
    os._exit(0)
