"""How the processes behind a launcher take the signals that ask them to leave, once they work."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Final

__all__ = ["drain_on_signals"]

_log = logging.getLogger(__name__)

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)


def drain_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on the first SIGTERM or SIGINT, end with exit code 1 on the second one.

    Belongs to the event loop that runs, in the main thread.
    """
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []

    def take(number: signal.Signals) -> None:
        if caught:
            os._exit(1)
        caught.append(number)
        _log.info("%s", number.name, extra={"event": "signal"})
        stop()

    for number in _STOPS:
        loop.add_signal_handler(number, take, number)
