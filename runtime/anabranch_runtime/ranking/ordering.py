"""The order of candidates by their scores: best first, equal ones as they were sent, NaN last."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["best_first"]


def best_first(
    scores: NDArray[np.float32], top_k: int, *, descending: bool = True
) -> NDArray[np.intp]:
    """Return the positions of the best scores, best first; any thread.

    Whatever `top_k` is, they are the first of the same order. Of equal scores the one at the lower
    position comes first; -0.0 equals 0.0, and NaNs equal each other.

    Args:
        scores: (n,).
        top_k: how many at most; 0 is all.
        descending: whether the greatest is the best.

    Returns:
        (min(top_k, n),), the caller's own.
    """
    keys = np.negative(scores) if descending else scores
    if 0 < top_k < len(keys) // 2:  # beyond that it is no dearer to sort all
        worst = np.partition(keys, top_k - 1)[top_k - 1]
        candidates: NDArray[np.intp] = (keys <= worst).nonzero()[0]  # whoever equals the last too
        if len(candidates) >= top_k:  # else the last is a NaN
            order = keys[candidates].argsort(kind="stable")[:top_k]
            return candidates.take(order)
    order = keys.argsort(kind="stable")
    return order[:top_k].copy() if 0 < top_k < len(order) else order
