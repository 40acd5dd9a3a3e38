"""Looks at every connection a few times a second: deadlines that passed, peers that stalled.

One timer for all of them: arming one per request would cost more than decoding it. Times are
therefore late by up to one tick.
"""

import asyncio
import logging
import time
from typing import Final
from typing import Protocol as Interface

from anabranch_server.limits import Limits

__all__ = ["Watch", "Watched"]

_LOGGER: Final = logging.getLogger(__name__)


class Watched(Interface):
    """A connection that time may end."""

    def look(self, now: float) -> None:
        """Act on what has taken too long at `now`, a `time.monotonic()` value."""


class Watch:
    """The clock of one event loop's connections; ticks while there are any.

    Attributes:
        now: `time.monotonic()` of the last tick: cheap to read, and late by at most one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits, idle_s: float) -> None:
        self.now = time.monotonic()
        self._loop = loop
        shortest = min(
            idle_s, limits.header_timeout_s, limits.body_timeout_s, limits.write_timeout_s
        )
        self._tick_s = min(0.25, shortest / 4)
        self._watched: set[Watched] = set()
        self._is_ticking = False

    def __len__(self) -> int:
        return len(self._watched)

    def add(self, connection: Watched) -> None:
        """Begin to look at `connection`."""
        self._watched.add(connection)
        if not self._is_ticking:
            self._is_ticking = True
            self.now = time.monotonic()
            self._loop.call_later(self._tick_s, self._tick)

    def remove(self, connection: Watched) -> None:
        """Look at `connection` no more."""
        self._watched.discard(connection)

    def _tick(self) -> None:
        if not self._watched:
            self._is_ticking = False
            return
        self.now = time.monotonic()
        for connection in tuple(self._watched):
            try:
                connection.look(self.now)
            except Exception:  # the edge of the loop: the clock goes on for the others
                _LOGGER.exception("internal error", extra={"event": "internal_error"})
        self._loop.call_later(self._tick_s, self._tick)
