"""Rows out of a segment file, as any other table file's: docs/formats.md, "Segments".

The layout is read here a second time, beside the native reader: that one maps a segment to look
rows up, this one reads it from front to back. `Segment.verify` is what proves its bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from anabranch_model_store.row_formats import row_stride
from anabranch_model_store.table_files.plain_arrays import PlainArray
from anabranch_model_store.table_files.sources import RowChunk, rows_per_chunk
from anabranch_wire.document_fields import KeyType, RowType
from anabranch_wire.errors import Corrupt, InvalidInput, NotFound, Unavailable

__all__ = ["SegmentRows", "open_segment_table"]

_MAGIC: Final = b"ANABSEGM"
_FORMAT: Final = 1
_HEADER: Final = np.dtype(
    [
        ("magic", "S8"), ("endian_tag", "<u4"), ("format", "<u4"), ("file_bytes", "<u8"),
        ("model_version", "<u8"), ("off_directory", "<u8"), ("directory_bytes", "<u8"),
        ("off_checksums", "<u8"), ("tables", "<u4"),
    ]
)  # fmt: skip
_RECORD: Final = np.dtype(
    [
        ("off_rows", "<u8"), ("off_keys", "<u8"), ("off_index", "<u8"), ("groups", "<u8"),
        ("seed", "<u8"), ("rows", "<u4"), ("dim", "<u4"), ("row_type", "<u4"), ("key_kind", "<u4"),
        ("name_offset", "<u4"), ("name_bytes", "<u4"),
    ]
)  # fmt: skip
_ROW_TYPES: Final[tuple[RowType, ...]] = ("f32", "f16", "bf16", "int8")
_ELEMENT_BYTES: Final[dict[RowType, int]] = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}
_INT8_HEADER: Final = 4
_DENSE_ID: Final = 1


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
        Corrupt: it is no segment of this format.
        Unavailable: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            header = np.frombuffer(file.read(_HEADER.itemsize), _HEADER, 1)[0]
            if header["magic"] != _MAGIC or header["format"] != _FORMAT:
                raise Corrupt(f"{what}: no segment of format {_FORMAT}")
            file.seek(int(header["off_directory"]))
            directory = file.read(int(header["directory_bytes"]))
        records = np.frombuffer(directory, _RECORD, int(header["tables"]))
    except (ValueError, OverflowError):
        raise Corrupt(f"{what}: the segment's header or directory is damaged") from None
    except OSError as error:
        raise Unavailable(f"{what}: cannot be read: {error.strerror}") from None
    for record in records:
        begin = int(record["name_offset"])
        if directory[begin : begin + int(record["name_bytes"])] == name.encode():
            return _rows(path, f"{what}: table {name!r}", record)
    raise NotFound(f"{what}: the segment has no table {name!r}")


def _rows(path: Path, what: str, record: np.void) -> SegmentRows:
    if record["row_type"] >= len(_ROW_TYPES) or not record["dim"]:
        raise InvalidInput(f"{what}: no row type that this release reads")
    dtype, dim, rows = _ROW_TYPES[record["row_type"]], int(record["dim"]), int(record["rows"])
    stride = row_stride(dtype, dim)
    encoded = PlainArray(path, what, np.dtype("u1"), (rows, stride), int(record["off_rows"]))
    keys = None
    if record["key_kind"] != _DENSE_ID:
        keys = PlainArray(path, what, np.dtype("<u8"), (rows,), int(record["off_keys"]))
    return SegmentRows(dim, dtype, encoded, keys)
