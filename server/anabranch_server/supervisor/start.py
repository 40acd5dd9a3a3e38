"""From the command line of a supervisor process to its exit code."""

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
from anabranch_server.supervisor.process import SupervisorProcess
from anabranch_wire.errors import AnabranchError

__all__ = ["run_supervisor"]

_log = logging.getLogger(__name__)


def run_supervisor(argv: Sequence[str]) -> int:
    """Look after the server until told to stop, and return the exit code. Main thread.

    A first SIGTERM or SIGINT drains, a second one ends the process at once with exit code 1.

    Args:
        argv: `sys.argv`: the program and the number of the descriptor of a boot document.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    boot = read_boot(argv)
    configure_logs(boot.config.logs, "supervisor")
    try:
        uvloop.run(_supervise(boot))
    except AnabranchError as error:
        _log.error("%s", error.message, extra={"event": "cannot_supervise"})
        return 1
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # threads inside native code or a slow file system must not be waited for


async def _supervise(boot: Boot) -> None:
    process = SupervisorProcess(boot)
    _catch_signals(process)
    await process.run()


def _catch_signals(process: SupervisorProcess) -> None:
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if caught:
            os._exit(1)
        caught.append(number)
        _log.info("%s", number.name, extra={"event": "signal"})
        process.leave()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: nothing was begun yet."""
    os._exit(0)
