"""How good scores are: area under the ROC curve, with its error, and log-loss. NumPy only."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Auc", "auc", "log_loss"]


class Auc(NamedTuple):
    """Probability that a clicked row scores above one that was not, and its standard error."""

    value: float
    error: float


def auc(clicks: NDArray[np.float32], scores: NDArray[np.float32]) -> Auc:
    """Area under the ROC curve; ties count half.

    The error is that of Hanley and McNeil, "The meaning and use of the area under a receiver
    operating characteristic (ROC) curve", Radiology 143 (1982), equations 1 and 2.

    Args:
        clicks: (N,), 1 or 0, both present.
        scores: (N,).
    """
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    hits = float(clicks.sum())
    misses = len(clicks) - hits
    area = float((ranks[clicks == 1].sum() - hits * (hits + 1) / 2) / (hits * misses))
    two_hits = area / (2 - area)
    two_misses = 2 * area**2 / (1 + area)
    variance = (
        area * (1 - area)
        + (hits - 1) * (two_hits - area**2)
        + (misses - 1) * (two_misses - area**2)
    ) / (hits * misses)
    return Auc(area, variance**0.5)


def log_loss(clicks: NDArray[np.float32], probabilities: NDArray[np.float32]) -> float:
    """Mean negative log-likelihood in nats; both arguments (N,), probabilities inside (0, 1)."""
    likely = np.where(clicks == 1, probabilities, 1 - probabilities.astype(np.float64))
    return float(-np.log(likely).mean())
