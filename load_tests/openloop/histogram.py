"""A histogram of durations in fixed memory whose relative error is known.

Counters are linear within each power of two (as in HdrHistogram): durations below 256 ns are exact,
all others are told within 1/128. The memory is that of the counters, whatever is recorded.
"""

from array import array
from collections.abc import Iterable
from typing import Final

import msgspec

__all__ = ["Histogram", "Summary"]

_BITS: Final = 7
_HIGHEST_NS: Final = 2**40 - 1  # 18 minutes
_COUNTERS: Final = (40 - _BITS + 1) << _BITS


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a histogram holds, in milliseconds; all of it 0 when nothing was recorded.

    Attributes:
        count: recorded durations.
        mean_ms: exact.
        p50_ms: half of the durations are at most this; never told too low, at most 1/128 too high.
        p90_ms: as `p50_ms`.
        p99_ms: as `p50_ms`.
        p999_ms: as `p50_ms`, 99.9 of 100.
        max_ms: exact.
    """

    count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Histogram:
    """Counts durations. Belongs to one thread."""

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * _COUNTERS))
        self._count = 0
        self._total_ns = 0
        self._max_ns = 0

    @property
    def count(self) -> int:
        """Recorded durations."""
        return self._count

    def record(self, duration_ns: int) -> None:
        """Count one duration; negative ones count as 0, those beyond 18 minutes as 18 minutes."""
        duration_ns = min(max(duration_ns, 0), _HIGHEST_NS)
        self._counts[_index(duration_ns)] += 1
        self._count += 1
        self._total_ns += duration_ns
        if duration_ns > self._max_ns:
            self._max_ns = duration_ns

    def percentile_ns(self, percent: float) -> int:
        """Return a duration that `percent` of the recorded ones do not exceed; 0 when empty.

        Args:
            percent: 0 to 100.
        """
        wanted = max(1, -int(-self._count * percent // 100))
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_highest(index), self._max_ns)
        return 0

    def summary(self) -> Summary:
        """Return the figures that a report shows."""
        p50, p90, p99, p999 = (self.percentile_ns(percent) / 1e6 for percent in (50, 90, 99, 99.9))
        return Summary(
            count=self._count,
            mean_ms=self._total_ns / self._count / 1e6 if self._count else 0.0,
            p50_ms=p50,
            p90_ms=p90,
            p99_ms=p99,
            p999_ms=p999,
            max_ms=self._max_ns / 1e6,
        )

    @classmethod
    def total(cls, parts: "Iterable[Histogram]") -> "Histogram":
        """Return the histogram of everything that `parts` recorded."""
        merged = cls()
        for part in parts:
            for index, count in enumerate(part._counts):
                if count:
                    merged._counts[index] += count
            merged._count += part._count
            merged._total_ns += part._total_ns
            merged._max_ns = max(merged._max_ns, part._max_ns)
        return merged


def _index(duration_ns: int) -> int:
    shift = max(0, duration_ns.bit_length() - _BITS - 1)
    return (shift << _BITS) + (duration_ns >> shift)


def _highest(index: int) -> int:
    """The longest duration that the counter at `index` counts."""
    shift = max(0, (index >> _BITS) - 1)
    return ((index - (shift << _BITS) + 1) << shift) - 1
