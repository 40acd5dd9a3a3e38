"""Batches on which a guess about bags of varying length is tried."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.row_axes import RowAxes
from anabranch_graph_opt.running import Array

__all__ = ["RaggedBatch", "ragged_batches"]

_LENGTHS: Final = (
    (0, 3, 1, 0),
    (2,),
    (5, 0, 0, 2, 2),
    (0, 0, 1),
    (1, 1),
    (0, 7, 3, 1, 4, 0, 0),
    (4,),
    (0, 2),
)
"""Of the bags of each batch: empty ones first, in the middle and last, and one bag alone."""
_SEED: Final = 19


@dataclass(frozen=True, slots=True, eq=False)
class RaggedBatch:
    """One batch.

    Attributes:
        lengths: of its bags.
        found: float32 [ids, dim], rows of the table.
        inputs: of the part that is tried.
    """

    lengths: tuple[int, ...]
    found: NDArray[np.float32]
    inputs: dict[str, Array]


def ragged_batches(
    inputs: Sequence[ir.Value], axes: RowAxes, dim: int, *, with_end: bool
) -> Iterator[RaggedBatch]:
    """Yield batches.

    Args:
        inputs: of the part that is tried, without the rows of the table.
        axes: what axis 0 of them counts.
        dim: numbers of a row of the table.
        with_end: whether offsets hold the end of the last bag too.
    """
    rng = np.random.default_rng(_SEED)
    for index, lengths in enumerate(_LENGTHS):
        total = sum(lengths)
        found = rng.standard_normal((total, dim), np.float32)
        if index % 3 == 2:  # repeated ids
            found[1:] = found[:1]
        offsets = np.concatenate([[0], np.cumsum(lengths)])[: len(lengths) + with_end]
        given: dict[str, Array] = {}
        for value in inputs:
            kind = axes.kinds[str(value.name)].kind
            size = {"ids": total, "rows": len(lengths), "bag": len(offsets)}.get(kind)
            shape = [axis if isinstance(axis, int) else 1 for axis in value.shape or ()]
            if shape and size is not None:
                shape[0] = size
            assert value.dtype is not None
            numbers = offsets if kind == "bag" else rng.standard_normal(shape)
            given[str(value.name)] = np.asarray(numbers).astype(value.dtype.numpy())
        yield RaggedBatch(lengths, found, given)
