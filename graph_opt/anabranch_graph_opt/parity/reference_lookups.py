"""Lookups of a plan in plain NumPy: what the store's kernels have to give, one lookup at a time."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anabranch_graph_opt.optimized import Optimized, TableSource
from anabranch_graph_opt.running import Array
from anabranch_wire.errors import InvalidInput
from anabranch_wire.lookups import Lengths, Lookup, Values

__all__ = ["look_up"]


def look_up(optimized: Optimized, arrays: Mapping[str, Array], rows: int) -> dict[str, Array]:
    """Return the buffers of a batch.

    Args:
        optimized: a model whose lookups are cut out.
        arrays: inputs of the original, and outputs of the prelude.
        rows: of the batch.

    Raises:
        InvalidInput: an id is outside its table, as ONNX Gather has it.
    """
    buffers: dict[str, Array] = {
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
        if lookup.lengths is not None:
            begin = lookup.output.column
            out[:, begin : begin + table.dim] = _bags(lookup, table, arrays, len(out))
            continue
        ids = _ids(lookup, arrays, len(out))
        found = _pooled(lookup, _rows(lookup, table, ids), _weights(lookup, arrays, ids.shape))
        begin = lookup.output.column
        out[:, begin : begin + found.shape[1]] = found
    return buffers


def _ids(lookup: Lookup, arrays: Mapping[str, Array], rows: int) -> NDArray[np.int64]:
    """Return int64 [rows, ids]."""
    flat = _columns(lookup.ids, arrays, rows, lookup.max_length)
    if lookup.ids.cast == "truncate" and not np.isfinite(flat).all():
        raise InvalidInput(f"ids {lookup.ids.input!r} hold numbers that are no integers")
    return flat.astype(np.int64) + lookup.ids.add


def _rows(lookup: Lookup, table: TableSource, ids: NDArray[np.int64]) -> Array:
    """Return the rows of each batch row: [rows, ids, dim]."""
    outside = (ids < -table.rows) | (ids >= table.rows)
    if outside.any():
        raise InvalidInput(
            f"id {ids[outside][0]} of {lookup.ids.input!r} is outside of table {table.name!r} with "
            f"{table.rows} rows"
        )
    wanted = np.where(ids < 0, ids + table.rows, ids)
    found: Array = np.asarray(table.tensor.numpy()[wanted.reshape(-1)])
    return found.reshape(*ids.shape, table.dim)


def _weights(
    lookup: Lookup, arrays: Mapping[str, Array], shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """Return a factor for each id."""
    if lookup.weights is None:
        return np.ones(shape)
    flat = _columns(lookup.weights, arrays, shape[0], lookup.max_length)
    return flat.astype(np.float64).reshape(shape)


def _pooled(lookup: Lookup, found: Array, weights: NDArray[np.float64]) -> Array:
    """Return [rows, columns]: the rows of each bag side by side, or what they become together."""
    if lookup.combiner == "none":
        return found.reshape(len(found), -1) if len(found) else np.empty((0, 0), found.dtype)
    if lookup.combiner == "max":
        return np.asarray(found.max(axis=1))
    total = (found.astype(np.float64) * weights[:, :, None]).sum(axis=1)
    if lookup.combiner in ("mean", "sqrtn"):
        squares = np.sqrt(np.square(weights).sum(axis=1))
        divisors = (weights.sum(axis=1) if lookup.combiner == "mean" else squares)[:, None]
        # Nothing to divide by: the bag is empty, or its weights cancel out.
        total = np.divide(total, divisors, out=np.zeros_like(total), where=divisors != 0)
    return np.asarray(total.astype(found.dtype))


def _bags(
    lookup: Lookup, table: TableSource, arrays: Mapping[str, Array], rows: int
) -> NDArray[np.float32]:
    """Return [rows, dim]: what the rows of bags become whose length varies."""
    assert lookup.lengths is not None
    ids = arrays[lookup.ids.input].astype(np.int64) + lookup.ids.add
    found = _rows(lookup, table, ids[:, None])
    weights = np.ones(len(ids))
    if lookup.weights is not None:
        weights = arrays[lookup.weights.input].astype(np.float64)
    bounds = arrays[lookup.lengths.input].astype(np.int64)
    if isinstance(lookup.lengths, Lengths):
        bounds = np.concatenate([[0], np.cumsum(bounds)])
    elif len(bounds) == rows:
        bounds = np.append(bounds, len(ids))
    pooled = np.zeros((rows, table.dim), np.float32)
    for row, (begin, end) in enumerate(pairwise(bounds.tolist())):
        if begin < end:
            bag = found[begin:end].reshape(1, end - begin, table.dim)
            pooled[row] = _pooled(lookup, bag, weights[None, begin:end])[0]
    return pooled


def _columns(values: Values, arrays: Mapping[str, Array], rows: int, length: int) -> Array:
    """Return the elements of each row that a lookup reads."""
    source = arrays[values.input]
    flat = source.reshape(rows, -1) if rows else source.reshape(0, length)
    if values.columns is not None and rows:
        begin, end = values.columns
        flat = flat[:, begin:end]
    return flat
