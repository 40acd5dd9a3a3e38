"""How long each phase of a request takes, said as it begins."""

import time
from collections.abc import Callable

from anabranch_server.processes.loader_messages import Phase

__all__ = ["Phases"]


class Phases:
    """The phases of one request; owned by whoever answers it.

    Args:
        say: told what begins.
    """

    def __init__(self, say: Callable[[Phase], None]) -> None:
        self._say = say
        self._now: Phase | None = None
        self._since_s = 0.0
        self._ms: dict[str, float] = {}

    def begin(self, phase: Phase) -> None:
        """Note that a phase begins, and the one before it is over; or that one goes on."""
        if phase == self._now:
            return
        self.end()
        self._now, self._since_s = phase, time.monotonic()
        self._say(phase)

    def end(self) -> dict[str, float]:
        """Return how long each took, in ms; one that comes twice counts together."""
        if self._now is not None:
            took_ms = (time.monotonic() - self._since_s) * 1e3
            self._ms[self._now] = round(self._ms.get(self._now, 0.0) + took_ms, 1)
            self._now = None
        return self._ms
