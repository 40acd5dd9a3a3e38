"""Reaping processes where that holds up nobody.

Reaping is one call, and mostly short. But the kernel (seen with 6.18) waits in it, computing, while
a thread of the ended process is still taking down its entries in /proc, and a loader's threads are
of the lowest priority: where requests keep every processor busy they get one for a moment each
second or so. In the launcher's own thread at its own priority that took half of a processor from
the requests, for up to half a minute, while nothing that ended was noticed.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from anabranch_server.launcher.places import End, Running
from anabranch_server.launcher.polling import Poller
from anabranch_server.processes.priorities import give_way

__all__ = ["Reaper"]

_COUNTER_BYTES: Final = 8


class Reaper:
    """Reaps each process in a thread that gives way to all others. Belongs to the poller's thread.

    Args:
        poller: in whose thread callbacks are made.
    """

    def __init__(self, poller: Poller) -> None:
        self._reaped: deque[Callable[[], None]] = deque()
        self._wakes = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        poller.add_reader(self._wakes, self._take)

    def reap(self, running: Running, then: Callable[[End], None]) -> None:
        """Reap a process that has ended, and call back with how it did.

        Args:
            running: its pidfd is readable; stays the caller's.
            then: called by the poller.
        """
        thread = threading.Thread(
            target=self._wait_for, args=(running, then), name="reaper", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system has no room for one
            self._reap(running, then)

    def _wait_for(self, running: Running, then: Callable[[End], None]) -> None:
        give_way()
        self._reap(running, then)

    def _reap(self, running: Running, then: Callable[[End], None]) -> None:
        self._reaped.append(partial(then, running.reap()))
        os.eventfd_write(self._wakes, 1)

    def _take(self) -> None:
        os.read(self._wakes, _COUNTER_BYTES)
        while self._reaped:
            self._reaped.popleft()()
