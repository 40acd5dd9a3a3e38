"""What a plan is compiled from, and the arrays of one batch: frozen values."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BagForm",
    "Combiner",
    "FeatureArrays",
    "FeatureLookup",
    "IdType",
    "LookupBuffer",
    "MissingPolicy",
    "OutputType",
    "Side",
]

IdType = Literal["int32", "int64", "float32", "float64"]
"""Of ids, lengths and offsets as they come; int64 takes uint64 arrays too."""

Combiner = Literal["none", "sum", "mean", "sqrtn", "max"]
"""How the rows of a bag become one; `none` keeps them side by side."""

Side = Literal["row", "user"]
"""Whether something is there per row of a batch or once per user."""

OutputType = Literal["f32", "f16"]

BagForm = Literal["fixed", "lengths", "offsets"]
"""How ids are cut into rows: `max_length` each, or flat with lengths or offsets beside them."""

MissingPolicy = Literal["zeros", "vector", "key", "error", "original"]
"""What an absent key yields: zeros, `missing_row`, the row of `missing_key`, an error, or what ONNX
Gather does: ids from -rows on count from the end, others are an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLookup:
    """One lookup of a plan.

    Attributes:
        feature: for messages.
        table: its number in the generation.
        side: per row or per user.
        id_type: of the ids as they come; floats are truncated toward zero.
        add: added to each id, wrapping around.
        combiner: how the rows of a bag become one.
        bag: how ids are cut into rows.
        bag_type: of lengths or offsets: `int32` or `int64`.
        max_length: ids a row: exactly (`fixed`), at most (combiner `none`), else a bound.
        weighted: whether each id has a factor; not with `none` and `max`.
        padding_key: contributes nothing and is not counted; signed or unsigned.
        missing: what an absent key yields.
        missing_row: for `vector`: `dim` numbers.
        missing_key: for `key`; signed or unsigned.
        buffer: number of the buffer that it writes.
        column: first of the `dim` columns that it writes there, or of `max_length * dim` with
            combiner `none`.
    """

    feature: str
    table: int
    side: Side = "row"
    id_type: IdType = "int64"
    add: int = 0
    combiner: Combiner = "sum"
    bag: BagForm = "fixed"
    bag_type: IdType = "int64"
    max_length: int = 1
    weighted: bool = False
    padding_key: int | None = None
    missing: MissingPolicy = "zeros"
    missing_row: tuple[float, ...] = ()
    missing_key: int = 0
    buffer: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupBuffer:
    """An array that lookups write.

    Attributes:
        columns: of each row.
        type: of its numbers.
        side: whether its rows are those of the batch, or its users.
    """

    columns: int
    type: OutputType = "f32"
    side: Side = "row"


@dataclass(frozen=True, slots=True)
class FeatureArrays:
    """What one lookup reads.

    Attributes:
        ids: `fixed`: (rows, max_length), or (rows,) with one id each; rows may lie apart, as those
            of a slice of columns do. Otherwise (ids,), one after another.
        bag: lengths (rows,), or offsets (rows,) or (rows + 1,); None for `fixed`.
        weights: one per id, one after another; None where the lookup has none.
    """

    ids: NDArray[Any]
    bag: NDArray[np.int64] | NDArray[np.int32] | None = None
    weights: NDArray[np.float32] | None = None
