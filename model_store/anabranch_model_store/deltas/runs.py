"""Runs: files with what deltas that follow each other make of the rows of a store, as one change.

They are laid out in docs/formats.md, "Runs". A file is whole from the moment it has its name and
never changes afterwards, so it is read where it lies, by any thread and process.
"""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.lineages import MARK, Marks
from anabranch_model_store.deltas.targets import RowChanges
from anabranch_runtime.checksums import crc32c
from anabranch_wire.errors import Corrupt, Unavailable, Unsupported

__all__ = [
    "ALIGNMENT",
    "ENDIAN_TAG",
    "FORMAT",
    "HEADER",
    "MAGIC",
    "RECORD",
    "RunFile",
    "RunTable",
    "checksum_of",
    "sorted_rows",
]

MAGIC: Final = b"ANABRUNS"
ENDIAN_TAG: Final = 0x01020304
FORMAT: Final = 2
ALIGNMENT: Final = 64
HEADER: Final = np.dtype(
    [
        ("magic", "S8"),
        ("endian", "<u4"),
        ("format", "<u4"),
        ("file_bytes", "<u8"),
        ("first", "<u4"),
        ("last", "<u4"),
        ("tables", "<u4"),
        ("others", "<u4"),
        ("identity", "V32"),
        ("deltas", "<u4"),
        ("reserved", "V48"),
        ("checksum", "<u4"),
    ]
)
RECORD: Final = np.dtype(
    [
        ("table", "<u4"),
        ("dim", "<u4"),
        ("upserts", "<u8"),
        ("deletes", "<u8"),
        ("keys_at", "<u8"),
        ("values_at", "<u8"),
        ("deleted_at", "<u8"),
        ("keys_crc", "<u4"),
        ("values_crc", "<u4"),
        ("deleted_crc", "<u4"),
        ("reserved", "<u4"),
    ]
)
_MOST_TABLES: Final = 65536
_CHECKED: Final = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class RunTable:
    """What a run does to one table.

    Attributes:
        table: its number in the segment.
        keys: (n,) int64, rising, none twice.
        values: (n, dim) float32, the rows of `keys`.
        deleted: (m,) int64, rising, none twice, none of them among `keys`.
    """

    table: int
    keys: NDArray[np.int64]
    values: NDArray[np.float32]
    deleted: NDArray[np.int64]

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return int(self.values.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class RunFile:
    """A run that is mapped; for any thread.

    Attributes:
        path: its file.
        first: the first delta of it.
        last: the last one.
        identity: of the version, as deltas name their base.
        tables: what it does, by rising numbers of tables; views of the file.
        others: numbers of its deltas that bring more than rows of a store, rising.
        marks: of the deltas that it was made of.
        bytes: of the file.
    """

    path: Path
    first: int
    last: int
    identity: str
    tables: tuple[RunTable, ...]
    others: tuple[int, ...]
    marks: Marks
    bytes: int
    _memory: mmap.mmap
    _checksums: tuple[tuple[int, int, int], ...]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map a file; checks its header and that all its arrays are there, not their checksums.

        Raises:
            Corrupt: it is damaged or cut short.
            Unsupported: its format is another.
            Unavailable: it cannot be read.
        """
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < HEADER.itemsize:
                    raise _damaged(path, f"{size} bytes are no header")
                memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        except OSError as error:
            raise Unavailable(f"{path.name}: cannot be read: {error.strerror}") from None
        header = np.frombuffer(memory, HEADER, 1)[0]
        if header["magic"] != MAGIC or header["endian"] != ENDIAN_TAG:
            raise _damaged(path, "it is no run")
        if header["format"] != FORMAT:
            raise Unsupported(
                f"{path.name}: format {header['format']}; this release reads {FORMAT}"
            )
        if header["file_bytes"] != size:
            raise _damaged(path, f"expected {header['file_bytes']} bytes, found {size}")
        tables, others, deltas = (int(header[name]) for name in ("tables", "others", "deltas"))
        others_at = HEADER.itemsize + tables * RECORD.itemsize
        marks_at = others_at + 4 * others
        end = marks_at + deltas * MARK.itemsize
        if tables > _MOST_TABLES or end > size:
            raise _damaged(path, "its directory does not end inside it")
        if _header_checksum(memory[:end]) != header["checksum"]:
            raise _damaged(path, "its directory is not what it was")
        records = np.frombuffer(memory, RECORD, tables, HEADER.itemsize)
        more = np.frombuffer(memory, "<u4", others, others_at)
        return cls(
            path,
            int(header["first"]),
            int(header["last"]),
            f"sha256:{header['identity'].tobytes().hex()}",
            tuple(_table(memory, record, size, path) for record in records),
            tuple(more.tolist()),
            np.frombuffer(memory, MARK, deltas, marks_at).copy(),
            size,
            memory,
            tuple(
                (int(one["keys_crc"]), int(one["values_crc"]), int(one["deleted_crc"]))
                for one in records
            ),
        )

    @property
    def rows(self) -> int:
        """Rows and deletes of all tables."""
        return sum(len(one.keys) + len(one.deleted) for one in self.tables)

    def verify(self) -> None:
        """Read everything, compare all checksums, and check the order of keys.

        Raises:
            Corrupt: something is damaged; says which table.
        """
        for table, expected in zip(self.tables, self._checksums, strict=True):
            arrays = (table.keys, table.values, table.deleted)
            if tuple(checksum_of(array) for array in arrays) != expected:
                raise _damaged(self.path, f"rows of table {table.table} are not what they were")
            for keys in (table.keys, table.deleted):
                if not (keys[1:] > keys[:-1]).all():
                    raise _damaged(self.path, f"keys of table {table.table} do not rise")

    def release(self) -> None:
        """Let go of pages that were read; they come again from the file."""
        self._memory.madvise(mmap.MADV_DONTNEED)


def checksum_of(array: NDArray[np.generic], checksum: int = 0) -> int:
    """Return the CRC32C of an array's bytes, behind those that gave `checksum`."""
    data = array.reshape(-1).view(np.uint8)
    for begin in range(0, len(data), _CHECKED):
        checksum = crc32c(data[begin : begin + _CHECKED], checksum)
    return checksum


def sorted_rows(table: int, changes: RowChanges) -> RunTable:
    """Return changes in the order of runs; of a key that is there twice the last row counts.

    Args:
        table: its number in the segment.
        changes: the arrays stay the caller's, and may be part of the result.
    """
    keys, values = changes.keys, changes.values
    if not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        is_last = np.ones(len(keys), np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=is_last[:-1])
        keys, values = ordered[is_last], values[order[is_last]]
    return RunTable(table, keys, values, np.unique(changes.deleted))


def _table(memory: mmap.mmap, record: np.void, size: int, path: Path) -> RunTable:
    table, dim = int(record["table"]), int(record["dim"])
    upserts, deletes = int(record["upserts"]), int(record["deletes"])
    if not dim:
        raise _damaged(path, f"rows of table {table} have no numbers")
    places = (
        (int(record["keys_at"]), 8 * upserts),
        (int(record["values_at"]), 4 * dim * upserts),
        (int(record["deleted_at"]), 8 * deletes),
    )
    for at, length in places:
        if at % ALIGNMENT or at + length > size:
            raise _damaged(path, f"rows of table {table} do not lie inside it")
    keys_at, values_at, deleted_at = (at for at, _ in places)
    return RunTable(
        table,
        np.frombuffer(memory, "<i8", upserts, keys_at),
        np.frombuffer(memory, "<f4", upserts * dim, values_at).reshape(upserts, dim),
        np.frombuffer(memory, "<i8", deletes, deleted_at),
    )


def _header_checksum(data: bytes) -> int:
    """Return the CRC32C of header and directory without the field that holds it."""
    at = HEADER.itemsize
    return crc32c(data[at:], crc32c(data[: at - 4]))


def _damaged(path: Path, what: str) -> Corrupt:
    return Corrupt(f"{path.name}: {what}; it is made anew where it is removed")
