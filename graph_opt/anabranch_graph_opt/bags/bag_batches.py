"""Batches on which a guess about pooling is tried: bags that are empty, single, full, or repeat."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.row_axes import RowAxes
from anabranch_graph_opt.running import Array

__all__ = ["bag_batches"]

_ROWS: Final = (2, 5, 1, 5, 3, 4)
_SEED: Final = 17


def bag_batches(
    inputs: Sequence[ir.Value], axes: RowAxes, length: int, dim: int
) -> Iterator[tuple[int, NDArray[np.float32], dict[str, Array]]]:
    """Yield rows of a batch, float32 [rows, length, dim] out of a table, and all other inputs.

    Args:
        inputs: of the graph that is tried, without the rows of the table.
        axes: what axis 0 of them counts.
        length: of bags.
        dim: numbers of a row of the table.
    """
    rng = np.random.default_rng(_SEED)
    for index, rows in enumerate(_ROWS * 2):
        found = rng.standard_normal((rows, length, dim), np.float32)
        if index % 3 == 2:  # repeated ids
            found = np.repeat(found[:, :1], length, axis=1)
        given = {str(value.name): _drawn(value, rows, axes, length, index, rng) for value in inputs}
        yield rows, found, given


def _drawn(
    value: ir.Value, rows: int, axes: RowAxes, length: int, index: int, rng: np.random.Generator
) -> Array:
    """Return numbers for an input: as ids with zeros for padding, as lengths, or as factors."""
    has_rows = axes.kinds[str(value.name)].kind == "rows"
    shape = [
        rows if at == 0 and has_rows else size if isinstance(size, int) else length
        for at, size in enumerate(value.shape or ())
    ]
    assert value.dtype is not None
    dtype = value.dtype.numpy()
    if value.dtype is ir.DataType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    numbers = rng.integers(0, length + 2, shape).astype(np.float64)
    if index % 4 == 0:  # few ids, much padding
        numbers = rng.integers(0, 2, shape).astype(np.float64)
    if index % 4 == 3 and value.dtype.is_floating_point():
        numbers = rng.standard_normal(shape)
    if shape and has_rows:
        if index % 2 == 0:
            numbers[0] = 0
        else:
            numbers[-1] = rng.integers(1, length + 1)
    return np.asarray(numbers).astype(dtype)
