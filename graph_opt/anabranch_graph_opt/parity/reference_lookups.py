"""Lookups of a plan in plain NumPy: what the store's kernels have to give, one lookup at a time."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from anabranch_graph_opt.optimized import Optimized, TableSource
from anabranch_graph_opt.running import Array
from anabranch_wire.errors import InvalidInput
from anabranch_wire.lookups import Lookup

__all__ = ["look_up"]


def look_up(optimized: Optimized, arrays: Mapping[str, Array], rows: int) -> dict[str, Array]:
    """Return the buffers of a batch.

    Args:
        optimized: a model whose lookups keep rows side by side (no bags).
        arrays: inputs of the original, and outputs of the prelude.
        rows: of the batch.

    Raises:
        InvalidInput: an id is outside its table, as ONNX Gather has it.
    """
    buffers = {
        buffer.name: np.zeros(
            (rows if buffer.side == "row" else 1, buffer.columns),
            np.float32 if buffer.dtype == "f32" else np.float16,
        )
        for buffer in optimized.buffers
    }
    names = [buffer.name for buffer in optimized.buffers]
    for lookup in optimized.lookups:
        out = buffers[names[lookup.output.buffer]]
        table = optimized.tables[lookup.table]
        found = _rows(lookup, table, _ids(lookup, arrays, len(out)))
        begin = lookup.output.column
        out[:, begin : begin + found.shape[1]] = found
    return buffers


def _ids(lookup: Lookup, arrays: Mapping[str, Array], rows: int) -> NDArray[np.int64]:
    """Return int64 [rows, ids]."""
    source = arrays[lookup.ids.input]
    flat = source.reshape(rows, -1) if rows else source.reshape(0, lookup.max_length)
    if lookup.ids.columns is not None and rows:
        begin, end = lookup.ids.columns
        flat = flat[:, begin:end]
    if lookup.ids.cast == "truncate" and not np.isfinite(flat).all():
        raise InvalidInput(f"ids {lookup.ids.input!r} hold numbers that are no integers")
    return flat.astype(np.int64) + lookup.ids.add


def _rows(lookup: Lookup, table: TableSource, ids: NDArray[np.int64]) -> Array:
    """Return the numbers of the rows of each batch row, side by side."""
    outside = (ids < -table.rows) | (ids >= table.rows)
    if outside.any():
        raise InvalidInput(
            f"id {ids[outside][0]} of {lookup.ids.input!r} is outside of table {table.name!r} with "
            f"{table.rows} rows"
        )
    wanted = np.where(ids < 0, ids + table.rows, ids)
    found: Array = np.asarray(table.tensor.numpy()[wanted.reshape(-1)])
    return found.reshape(len(ids), ids.shape[1] * table.dim)
