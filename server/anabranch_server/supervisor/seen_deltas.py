"""The deltas of a version as they were seen in the repository: which there are, and the newest."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = [
    "NO_DELTAS",
    "NO_STOPS",
    "Ranges",
    "SeenDeltas",
    "ranges_of",
    "with_number",
    "without_newest",
]

Ranges = tuple[tuple[int, int], ...]
"""(first, last) of each stretch of numbers without a gap, rising."""

NO_STOPS: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SeenDeltas:
    """Published deltas; immutable, and equal as long as no other delta appears.

    Attributes:
        ranges: numbers of published deltas: (first, last) of each stretch without a gap, rising.
        replaces_from: of the newest one; 0 where there is none, or it cannot be read.
        step: of the newest one, where it says so.
        event_time: of the newest one, where it says so.
        created: of the newest one, seconds since 1970; None where it cannot be read.
        fingerprint: of the newest one's file.
        jumps: (replaces_from, number) of the last cumulative ones whose files were read, rising by
            number. There may be others.
    """

    ranges: Ranges = ()
    replaces_from: int = 0
    step: int | None = None
    event_time: float | None = None
    created: float | None = None
    fingerprint: str = ""
    jumps: tuple[tuple[int, int], ...] = ()

    @property
    def newest(self) -> int:
        """The newest delta; 0 where there is none."""
        return self.ranges[-1][1] if self.ranges else 0

    def __contains__(self, number: int) -> bool:
        return _stretch(self.ranges, number) is not None

    def reach(
        self, applied: int, stops: Mapping[int, int] = NO_STOPS, upto: int | None = None
    ) -> int:
        """Return the newest delta that can be applied after `applied`, as far as is known here.

        Args:
            applied: the delta that a version is at.
            stops: deltas that could not be applied -> the newest one that was there then: none up
                to that leads past them.
            upto: the newest one that counts; None is all.
        """
        limit = self.newest if upto is None else min(self.newest, upto)
        at = applied
        while True:
            ahead = max(at, self._walk(at, stops, limit))
            leap = max((to for to in self._leaps(ahead, stops, limit)), default=ahead)
            if leap <= ahead:
                return ahead
            at = leap

    def _walk(self, at: int, stops: Mapping[int, int], limit: int) -> int:
        """Return how far one delta after the other leads."""
        stretch = _stretch(self.ranges, at + 1)
        if stretch is None:
            return at
        last = min(stretch[1], limit)
        return min((stop - 1 for stop in stops if at < stop <= last), default=last)

    def _leaps(self, at: int, stops: Mapping[int, int], limit: int) -> Iterator[int]:
        """Yield cumulative deltas that can be applied after `at`."""
        for replaces_from, number in (*self.jumps, (self.replaces_from, self.newest)):
            if 0 < replaces_from <= at + 1 <= number <= limit and all(
                number > newest for stop, newest in stops.items() if at < stop <= number
            ):
                yield number


NO_DELTAS = SeenDeltas()


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return the stretches of rising numbers."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return tuple((first, last) for first, last in found)


def with_number(ranges: Ranges, number: int) -> Ranges:
    """Return the stretches with one number more."""
    if ranges and number == ranges[-1][1] + 1:
        return (*ranges[:-1], (ranges[-1][0], number))
    if _stretch(ranges, number) is not None:
        return ranges
    at = bisect_left(ranges, (number, number))
    first = last = number
    before, after = ranges[:at], ranges[at:]
    if before and before[-1][1] == number - 1:
        first, before = before[-1][0], before[:-1]
    if after and after[0][0] == number + 1:
        last, after = after[0][1], after[1:]
    return (*before, (first, last), *after)


def without_newest(ranges: Ranges) -> Ranges:
    """Return the stretches, of which there are some, without the newest number."""
    *before, (first, last) = ranges
    return (*before, (first, last - 1)) if first < last else tuple(before)


def _stretch(ranges: Ranges, number: int) -> tuple[int, int] | None:
    """Return the stretch that a number is in."""
    at = bisect_left(ranges, (number + 1,)) - 1
    return ranges[at] if at >= 0 and number <= ranges[at][1] else None
