"""Proves by running that a part of a graph pools rows as it was guessed.

The part runs on random rows and inputs; what comes out has to be the pooled rows, for each bag of
each batch, but for the rounding of sums in another order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.bags.bag_batches import bag_batches
from anabranch_graph_opt.bags.found_bags import Combiner
from anabranch_graph_opt.bags.pooled_parts import pooled_part
from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.row_axes import RowAxes
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_wire.errors import AnabranchError

__all__ = ["Claim", "prove"]

_TOLERANCE: Final = 4e-6
"""Of the sum of magnitudes: rounding of float32 sums of some hundred numbers."""
_MIN_BATCHES: Final = 6
"""That have to run; others may be refused, since ids in them are made up."""


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """What a value is said to be.

    Attributes:
        rows: of a table: [rows, *, dim], `length` of them for each row of the batch.
        output: the value.
        combiner: how rows become one.
        weights: float32 [rows, length]; None: all are 1.
        length: of bags.
        dim: of the table.
    """

    rows: ir.Value
    output: ir.Value
    combiner: Combiner
    weights: ir.Value | None
    length: int
    dim: int


def prove(
    model: ir.Model, claim: Claim, row_shape: Sequence[int], axes: RowAxes, runner: ModelRunner
) -> tuple[int, ...] | None:
    """Return the shape of one row of the output; None where the claim is wrong, or is not seen.

    Args:
        model: that both values are in.
        claim: what is proven.
        row_shape: of the rows of the table: 0 stands for the batch, -1 for batch times length.
        axes: what axis 0 of inputs counts.
        runner: runs parts of the model.
    """
    outputs = [claim.output] if claim.weights is None else [claim.output, claim.weights]
    part = pooled_part(model, claim.rows, outputs)
    if part is None:
        return None
    content = graph_bytes(part)
    name = str(claim.rows.name)
    inputs = [value for value in part.graph.inputs if value.name != name]
    shapes: set[tuple[int, ...]] = set()
    ran = 0
    for rows, found, given in bag_batches(inputs, axes, claim.length, claim.dim):
        sizes = {0: rows, -1: rows * claim.length}
        given[name] = found.reshape([*(sizes.get(size, size) for size in row_shape), claim.dim])
        try:
            results = runner.run(content, given)
        except AnabranchError:
            continue
        ran += 1
        output = results[str(claim.output.name)]
        weights = None if claim.weights is None else results[str(claim.weights.name)]
        if not _is_pooled(output, found, weights, claim.combiner):
            return None
        shapes.add(output.shape[1:])
    return shapes.pop() if ran >= _MIN_BATCHES and len(shapes) == 1 else None


def _is_pooled(
    output: Array, found: NDArray[np.float32], weights: Array | None, combiner: Combiner
) -> bool:
    rows, length, dim = found.shape
    if output.dtype != np.float32 or output.ndim < 2 or output.shape[0] != rows:
        return False
    if output.size != rows * dim:
        return False
    if weights is not None and weights.shape != (rows, length):
        return False
    # Of a tensor [rows, 1, ..., dim]; anything else may be another order of the same numbers.
    if output.shape[-1] != dim:
        return False
    flat = output.reshape(rows, dim).astype(np.float64)
    values = found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        if weights is not None:
            values = values * weights.astype(np.float64)[:, :, None]
        pooled = {
            "sum": values.sum(axis=1),
            "mean": values.mean(axis=1),
            "max": values.max(axis=1),
        }[combiner]
        allowed = _TOLERANCE * np.abs(values).sum(axis=1)
        near = np.abs(flat - pooled) <= allowed
    same = np.isnan(flat) & np.isnan(pooled)
    return bool(np.all(near | same | (flat == pooled)))
