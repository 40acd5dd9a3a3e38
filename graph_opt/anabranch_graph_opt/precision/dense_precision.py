"""What is needed to give the dense part of a model fewer bits, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.model_source import ModelSource, open_model
from anabranch_graph_opt.passes.normalising import normalise
from anabranch_graph_opt.precision.activation_ranges import ActivationRange, ranges_digest
from anabranch_graph_opt.precision.int8_columns import WeightLimit
from anabranch_graph_opt.precision.int8_layers import Int8LayersPass

__all__ = ["Int8Precision", "rank_agreement", "reduced_model"]


@dataclass(frozen=True, slots=True, eq=False)
class Int8Precision:
    """How layers compute in eight bits.

    Attributes:
        activations: what activations were seen to be; None: scales come from each batch, and rows
            change each other.
        limit: largest weight.
    """

    activations: Mapping[str, ActivationRange] | None
    limit: WeightLimit = 127

    @property
    def digest(self) -> str:
        """Words that differ where the numbers of the graph do, weights apart."""
        seen = "dynamic" if self.activations is None else ranges_digest(self.activations)
        return f"int8 {self.limit} {seen}"

    def apply(self, model: ir.Model) -> tuple[str, ...]:
        """Rewrite the layers of a model in normal form; return the names of their weights."""
        rewriting = Int8LayersPass(self.activations, self.limit)
        rewriting(model)
        return tuple(rewriting.weights)


def reduced_model(
    source: ModelSource, precision: Int8Precision
) -> tuple[ir.Model, tuple[str, ...]]:
    """Return a whole model with fewer bits, and the weights of the layers that have them.

    Args:
        source: the model, which is not changed.
        precision: of its layers.

    Raises:
        NotFound, Corrupt, InvalidInput, Unsupported: as `open_model` and `normalise`.
    """
    model = normalise(open_model(source)).model
    return model, precision.apply(model)


def rank_agreement(expected: NDArray[np.floating], found: NDArray[np.floating]) -> float:
    """Return the share of all pairs of rows that keep their order, the lowest of all columns.

    Pairs count however close they are, but for those that were equal: 1 - 2 * (1 - agreement) is
    Kendall's tau.

    Args:
        expected: answers of the original, rows on axis 0.
        found: of what takes its place.
    """
    rows = len(expected) if expected.ndim else 1
    lowest = 1.0
    if rows < 2:
        return lowest
    for one, two in zip(
        expected.reshape(rows, -1).T.astype(np.float64),
        found.reshape(rows, -1).T.astype(np.float64),
        strict=True,
    ):
        gaps, others = one[:, None] - one[None, :], two[:, None] - two[None, :]
        apart = gaps > 0
        if apart.any():
            lowest = min(lowest, float((others[apart] > 0).mean()))
    return lowest
