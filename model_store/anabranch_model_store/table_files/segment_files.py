"""Rows out of a segment file, as any other table file's.

Where they lie is the native reader's word. They are read from there and not mapped: a file that
somebody cuts short is then an error message.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from anabranch_model_store.table_files.plain_arrays import PlainArray
from anabranch_model_store.table_files.sources import RowChunk, rows_per_chunk
from anabranch_runtime.store import Segment, SegmentTable, row_stride
from anabranch_wire.document_fields import KeyType, RowType
from anabranch_wire.errors import AnabranchError, NotFound, Unavailable

__all__ = ["SegmentRows", "open_segment_table"]

_ELEMENT_BYTES: Final[dict[RowType, int]] = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}
_INT8_HEADER: Final = 4


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """A `RowSource` over one table of a segment.

    Attributes:
        dim: numbers per row.
        dtype: of the numbers.
        encoded: [rows, stride] bytes.
        keys: [rows] in row order; None for dense ids.
    """

    dim: int
    dtype: RowType
    encoded: PlainArray
    keys: PlainArray | None

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.encoded.rows

    @property
    def key_dtype(self) -> KeyType | None:
        """How keys are written."""
        return None if self.keys is None else "uint64"

    def chunks(self) -> Iterator[RowChunk]:
        """Yield all rows; see `RowSource`."""
        step = rows_per_chunk(self.dim, self.dtype)
        for begin in range(0, self.rows, step):
            end = min(begin + step, self.rows)
            keys = None if self.keys is None else self.keys.read(begin, end).view(np.uint64)
            encoded = self.encoded.read(begin, end).view(np.uint8)
            if self.dtype == "int8":
                factors = np.ascontiguousarray(encoded[:, :_INT8_HEADER]).view("<f2")
                values = encoded[:, _INT8_HEADER : _INT8_HEADER + self.dim].view(np.int8)
                yield RowChunk(
                    begin, keys, np.ascontiguousarray(values),
                    np.ascontiguousarray(factors[:, 0]), np.ascontiguousarray(factors[:, 1]),
                )  # fmt: skip
                continue
            used = np.ascontiguousarray(encoded[:, : self.dim * _ELEMENT_BYTES[self.dtype]])
            if self.dtype == "bf16":
                widened = used.view("<u2").astype(np.uint32) << np.uint32(16)
                yield RowChunk(begin, keys, widened.view(np.float32))
            elif self.dtype == "f16":
                yield RowChunk(begin, keys, used.view(np.float16))
            else:
                yield RowChunk(begin, keys, used.view(np.float32))


def open_segment_table(path: Path, what: str, name: str) -> SegmentRows:
    """Return the rows of table `name` of a segment.

    Args:
        path: the file.
        what: how messages name it.
        name: of the table.

    Raises:
        NotFound: the segment has no such table.
        Corrupt: its header or directory is damaged.
        Unsupported: it is of a newer format.
        Unavailable: it cannot be read.
    """
    try:
        tables = Segment.open(path).tables
    except AnabranchError as error:
        raise type(error)(f"{what}: {error.message}") from None
    except OSError as error:
        raise Unavailable(f"{what}: cannot be read: {error.strerror}") from None
    for table in tables:
        if table.name == name:
            return _rows(path, f"{what}: table {name!r}", table)
    raise NotFound(f"{what}: the segment has no table {name!r}")


def _rows(path: Path, what: str, table: SegmentTable) -> SegmentRows:
    shape = (table.rows, row_stride(table.row_type, table.dim))
    encoded = PlainArray(path, what, np.dtype("u1"), shape, table.rows_offset)
    keys = None
    if table.keys == "hashed":
        keys = PlainArray(path, what, np.dtype("<u8"), (table.rows,), table.keys_offset)
    return SegmentRows(table.dim, table.row_type, encoded, keys)
