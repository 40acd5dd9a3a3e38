"""When the series of what is no longer served leave the counters page.

Not at once: whoever scrapes every few seconds must see the last values. Pure bookkeeping; time is
a parameter, seconds of any clock that does not go back.
"""

from typing import Final, NamedTuple

__all__ = ["Retired", "Retirement"]

_AFTER_S: Final = 300.0
_MOST: Final = 1000
"""Versions that wait for their time; more would fill the page, so the oldest go early."""


class Retired(NamedTuple):
    """What is no longer served.

    Attributes:
        model: model name.
        version: version number; None is all of the model.
    """

    model: str
    version: int | None = None


class Retirement:
    """Remembers what was unloaded, and when. One thread at a time."""

    def __init__(self, after_s: float = _AFTER_S, most: int = _MOST) -> None:
        self._after_s = after_s
        self._most = most
        self._waiting: dict[Retired, float] = {}

    def __len__(self) -> int:
        """Number of those that wait for their time."""
        return len(self._waiting)

    def unloaded(self, what: Retired, now_s: float) -> None:
        """Begin the time of `what`; its last request is over."""
        self._waiting.pop(what, None)  # the order is that of the times
        self._waiting[what] = now_s

    def loaded(self, what: Retired) -> None:
        """Keep `what` after all, and with it its model."""
        self._waiting.pop(what, None)
        self._waiting.pop(Retired(what.model), None)

    def due(self, now_s: float) -> list[Retired]:
        """Return and forget those whose time has come, the oldest first."""
        early = len(self._waiting) - self._most
        due = [
            what
            for index, (what, since_s) in enumerate(self._waiting.items())
            if index < early or now_s - since_s >= self._after_s
        ]
        for what in due:
            del self._waiting[what]
        return due
