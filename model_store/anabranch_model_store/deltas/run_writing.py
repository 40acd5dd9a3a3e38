"""Writing runs: changes of rows put one upon the other, key range by key range.

Memory stays within a few times `range_bytes`, whatever is merged: sorted keys are cut at the same
places in all of it, and each range is merged and written by itself. Keys are merged twice, the
first time only to know how many are left, so that each array has its place in the file.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedWriter
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.cache_entries import sync
from anabranch_model_store.deltas.lineages import NO_MARKS, Marks
from anabranch_model_store.deltas.runs import (
    ALIGNMENT,
    ENDIAN_TAG,
    FORMAT,
    HEADER,
    MAGIC,
    RECORD,
    RunTable,
    checksum_of,
)
from anabranch_runtime.checksums import crc32c

__all__ = ["RANGE_BYTES", "RunHead", "write_run"]

RANGE_BYTES: Final = 16 << 20
_KEY_BYTES: Final = 40
"""What is held in memory for a key beside its row: itself, where it is from, and their order."""

Keys = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RunHead:
    """What a run says of itself.

    Attributes:
        identity: of the version, as deltas name their base.
        first: the first delta of it.
        last: the last one.
        others: numbers of its deltas that bring more than rows of a store, rising.
        marks: of the deltas that it is made of.
    """

    identity: str
    first: int
    last: int
    others: tuple[int, ...] = ()
    marks: Marks = field(default_factory=NO_MARKS.copy)


def write_run(
    folder: Path,
    name: str,
    head: RunHead,
    sources: Sequence[Sequence[RunTable]],
    on_range: Callable[[], None] = lambda: None,
    range_bytes: int = RANGE_BYTES,
) -> None:
    """Write a run, whole or not at all.

    Args:
        folder: where it goes.
        name: of the file there; one that has it is replaced.
        head: what it says of itself.
        sources: changes, the earliest first; a later one counts where both have a key.
        on_range: called before each range of keys; what it raises ends the writing.
        range_bytes: of rows that are merged at a time.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    temporary = folder / f".run-{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # so that nobody clears it away meanwhile
            _write(file, head, sources, on_range, range_bytes)
            file.flush()
            os.fsync(file.fileno())
            temporary.rename(folder / name)
        sync(folder)
    finally:
        temporary.unlink(missing_ok=True)


def _write(
    file: BufferedWriter,
    head: RunHead,
    sources: Sequence[Sequence[RunTable]],
    on_range: Callable[[], None],
    range_bytes: int,
) -> None:
    tables = _by_table(sources)
    records = np.zeros(len(tables), RECORD)
    others = np.array(head.others, "<u4")
    end = HEADER.itemsize + records.nbytes + others.nbytes + head.marks.nbytes
    for record, parts in zip(records, tables, strict=True):
        upserts = deletes = 0
        for piece in _ranges(parts, range_bytes):
            on_range()
            upserts, deletes = upserts + len(piece.keys), deletes + len(piece.deleted)
        dim = parts[0].dim
        record["table"], record["dim"] = parts[0].table, dim
        record["upserts"], record["deletes"] = upserts, deletes
        for place, size in (
            ("keys_at", 8 * upserts),
            ("values_at", 4 * dim * upserts),
            ("deleted_at", 8 * deletes),
        ):
            record[place] = end = _aligned(end)
            end += size
    for record, parts in zip(records, tables, strict=True):
        arrays = [_Writing(file, int(record[at])) for at in ("keys_at", "values_at", "deleted_at")]
        for piece in _ranges(parts, range_bytes):
            on_range()
            arrays[0].add(piece.keys)
            arrays[1].add(piece.rows(parts[0].dim))
            arrays[2].add(piece.deleted)
        for place, array in zip(("keys_crc", "values_crc", "deleted_crc"), arrays, strict=True):
            record[place] = array.checksum
    file.truncate(end)
    header = np.zeros(1, HEADER)
    header["magic"], header["endian"], header["format"] = MAGIC, ENDIAN_TAG, FORMAT
    header["file_bytes"], header["first"], header["last"] = end, head.first, head.last
    header["tables"], header["others"] = len(records), len(others)
    header["deltas"] = len(head.marks)
    header["identity"] = np.void(bytes.fromhex(head.identity.removeprefix("sha256:")))
    directory = records.tobytes() + others.tobytes() + head.marks.tobytes()
    header["checksum"] = crc32c(directory, crc32c(header.tobytes()[:-4]))
    file.seek(0)
    file.write(header.tobytes() + directory)


class _Writing:
    """One array on its way into a file; owned by one call of `_write`."""

    def __init__(self, file: BufferedWriter, at: int) -> None:
        self._file = file
        self._at = at
        self.checksum = 0

    def add(self, array: NDArray[np.generic]) -> None:
        if array.nbytes:
            self._file.seek(self._at)
            self._file.write(np.ascontiguousarray(array).data)
            self.checksum = checksum_of(np.ascontiguousarray(array), self.checksum)
            self._at += array.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A range of keys of one table, merged.

    Attributes:
        keys: that have a row in the end, rising.
        deleted: that have none, rising.
        parts: what was merged.
        owner: per key, the part that its row is from.
        row: per key, its row there.
    """

    keys: Keys
    deleted: Keys
    parts: Sequence[RunTable]
    owner: NDArray[np.int32]
    row: NDArray[np.int64]

    def rows(self, dim: int) -> NDArray[np.float32]:
        """Return the rows of `keys`, (n, dim)."""
        if len(self.parts) == 1 and len(self.row):
            return self.parts[0].values[self.row[0] : self.row[-1] + 1]
        rows = np.empty((len(self.keys), dim), np.float32)
        for number, part in enumerate(self.parts):
            mine = np.flatnonzero(self.owner == number)
            if len(mine):
                rows[mine] = part.values[self.row[mine]]
        return rows


def _ranges(parts: Sequence[RunTable], range_bytes: int) -> Iterator[_Piece]:
    """Yield one table's changes, merged, in the order of keys."""
    streams = [keys for part in parts for keys in (part.keys, part.deleted)]
    at = [0] * len(streams)
    most = max(1, range_bytes // (4 * parts[0].dim + _KEY_BYTES))
    step = max(1, most // len(streams))
    while (left := sum(map(len, streams)) - sum(at)) > 0:
        ends = [len(keys) for keys in streams]
        if left > most:
            stops = [
                keys[i + step] for keys, i in zip(streams, at, strict=True) if i + step < len(keys)
            ]
            if stops:  # where each has so many at most before it, and one has exactly so many
                ends = [int(np.searchsorted(keys, min(stops))) for keys in streams]
        yield _merged(parts, at, ends)
        at = ends


def _merged(parts: Sequence[RunTable], begins: Sequence[int], ends: Sequence[int]) -> _Piece:
    """Return entries of all parts between two keys, the last one of each key.

    Args:
        parts: of one table, the earliest first.
        begins: for each part of its keys, and of its deleted ones, the first entry.
        ends: likewise, behind the last one.
    """
    if len(parts) == 1:
        part = parts[0]
        row = np.arange(begins[0], ends[0], dtype=np.int64)
        deleted = part.deleted[begins[1] : ends[1]]
        return _Piece(
            part.keys[begins[0] : ends[0]], deleted, parts, np.zeros(len(row), np.int32), row
        )
    keys: list[Keys] = []
    owners: list[NDArray[np.int32]] = []
    rows: list[Keys] = []
    for number, part in enumerate(parts):
        for stream, is_row in ((0, True), (1, False)):
            begin, end = begins[2 * number + stream], ends[2 * number + stream]
            if begin == end:
                continue
            keys.append((part.keys if is_row else part.deleted)[begin:end])
            owners.append(np.full(end - begin, number, np.int32))
            rows.append(
                np.arange(begin, end, dtype=np.int64) if is_row else np.full(end - begin, -1)
            )
    every, owner, row = np.concatenate(keys), np.concatenate(owners), np.concatenate(rows)
    order = np.argsort(every, kind="stable")  # parts of later deltas stay behind
    every = every[order]
    is_last = np.ones(len(every), np.bool_)
    np.not_equal(every[1:], every[:-1], out=is_last[:-1])
    every, order = every[is_last], order[is_last]
    owner, row = owner[order], row[order]
    has_row = row >= 0
    return _Piece(every[has_row], every[~has_row], parts, owner[has_row], row[has_row])


def _by_table(sources: Sequence[Sequence[RunTable]]) -> list[list[RunTable]]:
    """Return the changes of each table, by rising numbers; none for one without any."""
    found: dict[int, list[RunTable]] = {}
    for source in sources:
        for table in source:
            if len(table.keys) or len(table.deleted):
                found.setdefault(table.table, []).append(table)
    return [found[number] for number in sorted(found)]


def _aligned(at: int) -> int:
    return -(-at // ALIGNMENT) * ALIGNMENT
