"""Making up inputs that a model accepts: for warm-up, row checks and measurements.

Ids stay inside the tables they look up, lengths inside the sequences they count, and axes that
share a symbol get one size. Nothing is promised about what such inputs mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_graph_opt.lookup_ranges import ColumnRanges, find_ranges
from anabranch_graph_opt.model_source import ModelSource, inlined, open_model
from anabranch_graph_opt.row_axes import InputAxis, resolve_row_axes
from anabranch_graph_opt.running import Array
from anabranch_graph_opt.signature import Signature
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

__all__ = ["ExampleInputs", "generate_inputs"]

_MAX_FREE_SIZE: Final = 6
"""Largest size given to an axis that is neither fixed nor the row axis."""
_MAX_BAG: Final = 4
_SMALL_INTEGER: Final = 4
"""Largest integer given to an input that no lookup limits."""


def generate_inputs(
    signature: Signature,
    model: ModelSource,
    rows: int,
    rng: np.random.Generator,
    axes: Mapping[str, InputAxis] | None = None,
) -> dict[str, Array]:
    """Return one array for each input, `rows` rows where the input has a row axis.

    For several batches of one model keep an `ExampleInputs`: the analysis is the costly part.

    Raises:
        InvalidInput: `rows` is below 1, or `axes` does not fit the model.
    """
    return ExampleInputs(signature, model, axes).batch(rows, rng)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes chosen for one batch.

    Attributes:
        rows: of the row axes.
        ids: of the axes that count the ids of all bags.
        free: symbol, or `input/axis` where it has none -> size of every other axis that varies.
    """

    rows: int
    ids: int
    free: Mapping[str, int]


class ExampleInputs:
    """A source of made-up batches for one model.

    Keeps the model's graph and the ranges found so far. Not safe for several threads at once.
    """

    def __init__(
        self,
        signature: Signature,
        model: ModelSource,
        axes: Mapping[str, InputAxis] | None = None,
    ) -> None:
        self._signature = signature
        self._kinds = resolve_row_axes(signature, axes).kinds
        self._model = inlined(open_model(model))
        self._row_symbols = {
            signature.symbols[spec.name][0]
            for spec in signature.inputs
            if self._kinds[spec.name].kind == "rows"
        } - {None}
        self._free = self._free_axes()
        self._ranges: dict[tuple[tuple[str, int], ...], Mapping[str, ColumnRanges]] = {}
        self._largest_free = self._largest_fitting()

    def batch(self, rows: int, rng: np.random.Generator) -> dict[str, Array]:
        """Return a new batch; arrays belong to the caller.

        Raises:
            InvalidInput: `rows` is below 1.
        """
        if rows < 1:
            raise InvalidInput(f"{rows} rows asked for: a batch has at least one")
        free = {name: int(rng.integers(1, self._largest_free + 1)) for name in self._free}
        counts = rng.integers(0, _MAX_BAG + 1, rows)
        sizes = _Sizes(rows, int(counts.sum()), free)
        ranges = self._ranges_at(free)
        return {
            spec.name: _starts(spec, counts, self._shape(spec, sizes)[0])
            if self._kinds[spec.name].kind == "bag"
            else _drawn(spec, self._shape(spec, sizes), ranges[spec.name], rng)
            for spec in self._signature.inputs
        }

    def _free_axes(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for spec in self._signature.inputs:
            for axis, size in enumerate(spec.shape):
                if size == -1 and not self._counts_rows(spec, axis):
                    names[self._free_name(spec, axis)] = None
        return tuple(names)

    def _free_name(self, spec: TensorSpec, axis: int) -> str:
        return self._signature.symbols[spec.name][axis] or f"{spec.name}/{axis}"

    def _counts_rows(self, spec: TensorSpec, axis: int) -> bool:
        if axis == 0 and self._kinds[spec.name].kind != "none":
            return True
        return self._signature.symbols[spec.name][axis] in self._row_symbols

    def _shape(self, spec: TensorSpec, sizes: _Sizes) -> tuple[int, ...]:
        shape = []
        for axis, size in enumerate(spec.shape):
            kind = self._kinds[spec.name].kind if axis == 0 else "none"
            if kind == "ids":
                size = sizes.ids
            elif kind == "bag":
                symbol = self._signature.symbols[spec.name][0] or ""
                size = sizes.rows + symbol.replace(" ", "").endswith("+1")
            elif kind == "rows" or (size == -1 and self._counts_rows(spec, axis)):
                size = sizes.rows
            elif size == -1:
                size = sizes.free[self._free_name(spec, axis)]
            shape.append(size)
        return tuple(shape)

    def _ranges_at(self, free: Mapping[str, int]) -> Mapping[str, ColumnRanges]:
        key = tuple(free.items())
        if key not in self._ranges:
            self._ranges[key], _ = find_ranges(self._model, self._probe_shapes(free))
        return self._ranges[key]

    def _probe_shapes(self, free: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        sizes = _Sizes(rows=2, ids=3, free=free)
        return {spec.name: self._shape(spec, sizes) for spec in self._signature.inputs}

    def _largest_fitting(self) -> int:
        """Largest size of free axes at which no table of positions is left."""
        for size in range(_MAX_FREE_SIZE if self._free else 1, 1, -1):
            _, fits = find_ranges(self._model, self._probe_shapes(dict.fromkeys(self._free, size)))
            if fits:
                return size
        return 1


def _starts(spec: TensorSpec, counts: NDArray[np.int64], size: int) -> Array:
    """Where each bag starts, [N], or with the end of the last one, [N + 1]."""
    return np.concatenate([[0], np.cumsum(counts)])[:size].astype(spec.dtype)


def _drawn(
    spec: TensorSpec, shape: tuple[int, ...], ranges: ColumnRanges, rng: np.random.Generator
) -> Array:
    if spec.datatype == "BYTES":
        words = np.array([b"a", b"b", b"item_1", b""], dtype=object)
        return rng.choice(words, shape)
    if spec.datatype == "BOOL":
        return rng.integers(0, 2, shape).astype(np.bool_)
    low = np.where(ranges.narrowed, ranges.low, 0)
    high = np.where(ranges.narrowed, ranges.high, _SMALL_INTEGER)
    whole = rng.integers(low, high + 1, shape)
    if spec.dtype.kind != "f" and spec.datatype != "BF16":
        return _within(whole, spec.dtype)
    values = np.where(ranges.narrowed, whole, rng.random(shape))
    if spec.datatype == "BF16":
        bits = np.asarray(values, "<f4").view("<u4") >> np.uint32(16)
        return bits.astype("<u2")
    return values.astype(spec.dtype)


def _within(values: NDArray[np.int64], dtype: np.dtype[np.generic]) -> Array:
    limits = np.iinfo(dtype.name)
    return np.clip(values, max(limits.min, -(2**62)), min(limits.max, 2**62)).astype(dtype)
