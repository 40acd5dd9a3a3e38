"""Weights at two snapshots, compared number by number."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["compare_weights"]

Array = NDArray[np.generic]

_STEP: Final = 1 << 20


def compare_weights(before: Array | None, after: Array | None) -> tuple[int, float]:
    """Return how many numbers differ, and the Euclidean length of the change.

    Args:
        before: at the first snapshot; None where it has no such weight.
        after: at the second one.

    Returns:
        All numbers of the larger one and NaN, where one of them is missing or of another shape.
    """
    if before is None or after is None or before.shape != after.shape:
        return max(one.size for one in (before, after) if one is not None), math.nan
    changed, squares = 0, 0.0
    first, second = before.reshape(-1), after.reshape(-1)
    for begin in range(0, first.size, _STEP):
        one, other = first[begin : begin + _STEP], second[begin : begin + _STEP]
        differ = _differ(one, other)
        changed += int(np.count_nonzero(differ))
        with np.errstate(invalid="ignore", over="ignore"):
            change = _wide(other[differ]) - _wide(one[differ])
            squares += float(np.sum(np.square(np.abs(change))))
    return changed, math.sqrt(squares) if not math.isnan(squares) else math.nan


def _differ(one: Array, other: Array) -> NDArray[np.bool_]:
    if one.dtype == other.dtype and one.dtype.kind in "iub":
        return np.not_equal(one, other, dtype=np.bool_)
    first, second = _wide(one), _wide(other)
    return np.not_equal(first, second) & ~(np.isnan(first) & np.isnan(second))


def _wide(array: Array) -> NDArray[np.float64] | NDArray[np.complex128]:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    return array.astype(np.float64)
