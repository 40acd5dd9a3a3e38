"""Which documents are compared with those that are mirrored: few at a time, and each in its turn.

Nothing at a URL tells that one was published anew. What is in the way of a server is mostly among
the newest, so that their turn comes round sooner.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

__all__ = ["Comparisons", "Turn"]

_NEWEST: Final = 4
"""So many are compared each time."""
_RECENT: Final = 64
"""So many of the newest are compared at a start, and then in turn."""
_RECENT_EACH: Final = 6
_OLDER_EACH: Final = 2


class Turn:
    """Takes a few of many at a time, each before any a second time."""

    def __init__(self) -> None:
        self._last = 0

    def take(self, numbers: Sequence[int], count: int) -> list[int]:
        """Return `count` of some rising positive numbers, or all: those after the last ones."""
        if not numbers:
            return []
        begin = bisect_right(numbers, self._last)
        taken = [*numbers[begin:], *numbers[:begin]][:count]
        self._last = taken[-1]
        return sorted(taken)


class Comparisons:
    """Chooses deltas of one version.

    Args:
        is_start: whether nothing is known of when they were mirrored.
    """

    def __init__(self, *, is_start: bool) -> None:
        self._is_start = is_start
        self._recent = Turn()
        self._older = Turn()

    def choose(self, numbers: Sequence[int]) -> list[int]:
        """Return which of some rising numbers to compare now, rising."""
        recent, newest = numbers[-_RECENT:-_NEWEST], numbers[-_NEWEST:]
        taken = list(recent) if self._is_start else self._recent.take(recent, _RECENT_EACH)
        self._is_start = False
        return [*self._older.take(numbers[:-_RECENT], _OLDER_EACH), *taken, *newest]
