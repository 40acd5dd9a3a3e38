"""The score formula: one number for each candidate out of the heads of a model."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Formula", "score"]

Formula = Literal["head", "weighted_sum", "product_of_powers"]


def score(
    formula: Formula, weights: Mapping[str, float], heads: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the scores of candidates, (rows,); any thread.

    Terms are taken in the order of `weights`. A negative number to the power of a fraction is NaN,
    minus infinity too, and so is infinity less infinity. The caller sees to it that NumPy does not
    warn of either (`numpy.errstate`).

    Args:
        formula: `head` takes the only head as it is, whatever its weight.
        weights: head -> factor or exponent; at least one.
        heads: head -> (rows,), for all of them.
    """
    if formula == "head":
        (name,) = weights
        return heads[name]
    total: NDArray[np.float64] | None = None
    for name, weight in weights.items():
        values = heads[name]
        if formula == "weighted_sum":
            term = values * weight
            total = term if total is None else total + term
        else:
            term = values if weight == 1.0 else _power(values, weight)
            total = term if total is None else total * term
    if total is None:
        raise ValueError("a score is made of at least one head")
    return total


def _power(values: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    if not exponent.is_integer():  # pow of C has infinity for minus infinity, a root has NaN
        values = np.where(values < 0, np.nan, values)
    return np.power(values, exponent)
