"""How long batches of one version take, as measured while it serves; plain arithmetic, no clock.

A batch of `rows` rows takes `scale * (rows + fixed_rows)` seconds. `fixed_rows`, what a batch costs
beside its rows, is a matter of the graph and found once at load; `scale` follows the machine.
"""

from collections.abc import Sequence
from typing import Final

from anabranch_runtime.batch_size import HAND_OVER_S, BatchCost

__all__ = ["Pace", "pace_of"]

_WEIGHT: Final = 0.125
"""Of a new batch in the average."""

_OUTLIER: Final = 4.0
"""How many times the average a batch counts at most: a stall of the machine is not its pace."""

_FRESH_S: Final = 1.0
_FRESH_BATCHES: Final = 4.0
"""A pace that was measured longer ago, in seconds and in batches, refuses nobody: who is refused
measures nothing."""

_WORTH: Final = 0.5
"""Rows per second of a batch cut short, in parts of what the waiting rows would reach."""


class Pace:
    """Expected times of batches. Belongs to a session group, which guards it by its lock.

    Args:
        full_rows: rows of a full batch; 0 where every request is a batch of its own.
        fixed_rows: rows that a batch costs beside its own.
        scale: seconds a row; 0.0 where nothing was measured yet.
    """

    __slots__ = ("_fixed_rows", "_fresh_until", "_full_rows", "_scale")

    def __init__(self, full_rows: int = 0, fixed_rows: float = 0.0, scale: float = 0.0) -> None:
        self._full_rows = full_rows
        self._fixed_rows = fixed_rows
        self._scale = scale
        self._fresh_until = 0.0

    def observe(self, rows: int, seconds: float, now: float) -> None:
        """Learn from a batch of `rows` rows that took `seconds` and ended at `now`."""
        size = rows + self._fixed_rows
        if size <= 0.0:
            return
        scale = seconds / size
        old = self._scale
        if old and now < self._fresh_until:
            scale = old + _WEIGHT * (min(scale, _OUTLIER * old) - old)
        self._scale = scale
        self._fresh_until = now + max(_FRESH_S, _FRESH_BATCHES * seconds)

    def run_s(self, rows: int) -> float:
        """Seconds of a batch; 0.0 where nothing was measured yet."""
        return self._scale * (rows + self._fixed_rows)

    def share_s(self, rows: int) -> float:
        """Seconds of an executor that a request takes among many, as batches are full then."""
        full = self._full_rows
        fixed = self._fixed_rows if rows >= full else self._fixed_rows * rows / full
        return self._scale * (rows + fixed)

    def rows_within(self, seconds: float, now: float) -> float:
        """Rows that a batch begun at `now` computes in `seconds`; infinite where nobody knows."""
        if now >= self._fresh_until or not self._scale:
            return float("inf")
        return seconds / self._scale - self._fixed_rows

    def is_worth(self, rows: float, planned: int) -> bool:
        """Whether a batch of `rows` rows is not too wasteful where `planned` could be computed."""
        if rows >= planned:
            return True
        fixed = self._fixed_rows
        return rows * (planned + fixed) >= _WORTH * planned * (rows + fixed)


def pace_of(costs: Sequence[BatchCost], full_rows: int, typical_rows: int) -> Pace:
    """Return the pace of a version as it was measured at load.

    Args:
        costs: times of batches, by rising rows; may be empty.
        full_rows: rows of a full batch; 0 where every request is a batch of its own.
        typical_rows: of an example, for where less than two sizes were measured.
    """
    if not costs:
        return Pace(full_rows, float(typical_rows))
    first, last = costs[0], costs[-1]
    row_s = (last.seconds - first.seconds) / max(1, last.rows - first.rows)
    if row_s <= 0.0:  # batches of one size, or of one price whatever their size
        fixed_rows = float(last.rows if first is last else 64 * last.rows)
    else:
        fixed_rows = max(0.0, first.seconds + HAND_OVER_S - row_s * first.rows) / row_s
    return Pace(full_rows, fixed_rows, last.seconds / (last.rows + fixed_rows))
