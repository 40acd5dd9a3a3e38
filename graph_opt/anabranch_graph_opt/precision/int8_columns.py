"""Weights of eight bits: a scale for each column, zero is zero."""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["WeightLimit", "quantised_columns"]

WeightLimit = Literal[127, 63]
"""Largest weight. 63 for processors that add pairs of products in 16 bits: 2 * 255 * 64 fits."""

_TINY: Final = float(np.finfo(np.float32).tiny)


def quantised_columns(
    matrix: NDArray[np.float32], limit: WeightLimit
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return a matrix in eight bits and the scale of each of its columns.

    Args:
        matrix: [depth, columns], finite.
        limit: of the numbers that are returned.
    """
    largest = np.abs(matrix).max(axis=0)
    scales = np.where(largest > _TINY, largest / limit, 1.0).astype(np.float32)
    numbers = np.rint(matrix / scales).clip(-limit, limit).astype(np.int8)
    return numbers, scales
