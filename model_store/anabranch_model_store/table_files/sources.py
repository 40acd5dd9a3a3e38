"""What every kind of table file is read as: keys and values, some rows at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.document_fields import KeyType, RowType

__all__ = ["CHUNK_BYTES", "Keys", "RowChunk", "RowSource", "Values", "rows_per_chunk"]

CHUNK_BYTES: Final = 4 << 20
"""What a chunk has at most, unless a single row has more."""

Keys = NDArray[np.uint64]
"""[n] 64-bit keys; signed ones are carried as the same bits."""
Values = NDArray[np.float32] | NDArray[np.float16] | NDArray[np.int8]

_BYTES: Final[dict[RowType, int]] = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}


@dataclass(frozen=True, slots=True, eq=False)
class RowChunk:
    """Consecutive rows of a table file. Arrays are packed, little-endian and the reader's own.

    Attributes:
        first_row: number of the first one in the file, counted from 0.
        keys: [n]; None where the file has no keys, so that row numbers are the keys.
        values: [n, dim] float32, float16, or int8 with `scale` and `bias`; bfloat16 comes as the
            float32 that it is.
        scale: [n] float16 for int8 values: a number is scale * value + bias.
        bias: [n] float16 for int8 values.
    """

    first_row: int
    keys: Keys | None
    values: Values
    scale: NDArray[np.float16] | None = None
    bias: NDArray[np.float16] | None = None

    @property
    def bytes(self) -> int:
        """What it is counted as while a table is read: 8 for a key, 4 for a number."""
        return int(len(self.values) * (8 + 4 * self.values.shape[1]))

    def row_keys(self) -> Keys:
        """Return the keys, row numbers where the file has none."""
        if self.keys is not None:
            return self.keys
        return np.arange(self.first_row, self.first_row + len(self.values), dtype=np.uint64)

    def numbers(self) -> NDArray[np.float32]:
        """Return the rows as [n, dim] float32."""
        values = self.values.astype(np.float32, copy=False)
        if self.scale is None or self.bias is None:
            return values
        scale, bias = self.scale.astype(np.float32), self.bias.astype(np.float32)
        return values * scale[:, None] + bias[:, None]


class RowSource(Protocol):
    """An opened table file. For one thread; it needs no closing.

    Attributes:
        rows: rows of the file.
        dim: numbers per row.
        dtype: of the numbers.
        key_dtype: how keys are written; None where the file has none.
    """

    @property
    def rows(self) -> int: ...  # noqa: D102 - see the class
    @property
    def dim(self) -> int: ...  # noqa: D102
    @property
    def dtype(self) -> RowType: ...  # noqa: D102
    @property
    def key_dtype(self) -> KeyType | None: ...  # noqa: D102

    def chunks(self) -> Iterator[RowChunk]:
        """Yield all rows in the order of the file, about `CHUNK_BYTES` at a time.

        Raises:
            InvalidInput: the file is malformed where it had not been read before.
            Unavailable: it cannot be read.
        """
        ...


def rows_per_chunk(dim: int, dtype: RowType) -> int:
    """Return how many rows with their keys a chunk has, at least one."""
    return max(1, CHUNK_BYTES // (8 + dim * _BYTES[dtype]))
