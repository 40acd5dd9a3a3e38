"""Looks at every connection once a second: deadlines that passed, peers that stalled.

One timer for all of them: arming one per request would cost more than decoding it. Times are
therefore late by up to one round. A round is cut into ticks, so that many connections do not hold
up the loop.
"""

import asyncio
import logging
import time
from typing import Final
from typing import Protocol as Interface

from anabranch_server.limits import Limits

__all__ = ["Watch", "Watched"]

_ROUND_S: Final = 1.0
_TICKS: Final = 8
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
        self._tick_s = min(_ROUND_S, shortest / 4) / _TICKS
        self._watched: set[Watched] = set()
        self._unseen: list[Watched] = []
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
        if not self._unseen:
            self._unseen = list(self._watched)
        share = len(self._watched) // _TICKS + 1
        seen, self._unseen = self._unseen[:share], self._unseen[share:]
        for connection in seen:
            if connection not in self._watched:
                continue
            try:
                connection.look(self.now)
            except Exception:  # the edge of the loop: the clock goes on for the others
                _LOGGER.exception("internal error", extra={"event": "internal_error"})
        self._loop.call_later(self._tick_s, self._tick)
