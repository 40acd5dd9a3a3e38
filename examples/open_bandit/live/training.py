"""Training in small steps, each of which knows the rows that it changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from open_bandit.features import Inputs
from open_bandit.live.click_model import gradient, score
from open_bandit.live.weights import Real, Weights

__all__ = ["Changed", "Trainer"]

_LEARNING_RATE: Final = 0.02
_FIRST_SQUARE: Final = 1e-4
"""Sum of squares that each number starts with, so that the first step is not the largest."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What one step changed.

    Attributes:
        rows: table -> (K,) int64 row numbers, where there are some.
        dense: names of the other weights.
    """

    rows: Mapping[str, NDArray[np.int64]]
    dense: tuple[str, ...]

    @property
    def row_count(self) -> int:
        """Rows in all tables."""
        return sum(len(keys) for keys in self.rows.values())


class Trainer:
    """Weights and the state of Adagrad. For one thread.

    Adagrad is that of Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning
    and Stochastic Optimization", JMLR 12 (2011). It has no momentum, so a step changes only rows
    that it looked up, and a delta needs those alone.
    """

    def __init__(self, weights: Weights) -> None:
        """Takes the weights over: they change from now on.

        Args:
            weights: what training goes on from.
        """
        self._weights = weights
        self._squares = {name: np.full_like(w, _FIRST_SQUARE) for name, w in weights.items()}
        self._steps = 0

    @property
    def weights(self) -> Weights:
        """As they are now; to be read, and only until the next step."""
        return self._weights

    @property
    def steps(self) -> int:
        """How many were made."""
        return self._steps

    def score(self, inputs: Inputs) -> NDArray[np.float32]:
        """Probabilities (N,) of N rows."""
        return score(self._weights, inputs).astype(np.float32)

    def step(self, inputs: Inputs, clicks: NDArray[np.float32]) -> Changed:
        """Make one step on N rows; returns what is different now, bit by bit.

        Args:
            inputs: name -> (N, ...) of every model input, N at least 1.
            clicks: (N,), 1 or 0.
        """
        found = gradient(self._weights, inputs, clicks)
        rows: dict[str, NDArray[np.int64]] = {}
        for name, (keys, values) in found.rows.items():
            before = self._weights[name][keys]
            self._squares[name][keys] += values**2
            after = before - _step_of(values, self._squares[name][keys])
            self._weights[name][keys] = after
            different = keys[(before != after).any(axis=1)]
            if len(different):
                rows[name] = different
        for name, values in found.dense.items():
            self._squares[name] += values**2
            self._weights[name] -= _step_of(values, self._squares[name])
        self._steps += 1
        return Changed(rows, tuple(found.dense))


def _step_of(values: Real, squares: Real) -> Real:
    return _LEARNING_RATE * values / np.sqrt(squares)
