"""From the table files of a version to one segment in the cache, made once for the same rows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from anabranch_model_store.hashing import file_sha256
from anabranch_model_store.segment_cache import SegmentCache, link_or_copy
from anabranch_model_store.table_files import RowChunk, RowSource, checked_chunks
from anabranch_model_store.version_files import VersionFiles
from anabranch_model_store.version_tables import VersionTable, VersionTables
from anabranch_runtime.store import Segment, SegmentBuilder, TableBuilder
from anabranch_wire.errors import Corrupt, InvalidInput
from anabranch_wire.plan import PlanTable

__all__ = ["BytesDone", "adopt_segment", "import_tables", "write_table"]

BytesDone = Callable[[int, int], None]
"""Told how many bytes of how many are done."""

_FORMAT: Final = "segment 1"
"""Changes with the layout of segments, and with what is made of the same files."""


def import_tables(
    tables: VersionTables, files: VersionFiles, cache: SegmentCache, on_bytes: BytesDone
) -> Path:
    """Return the segment with the rows of a version, in the cache folder.

    A segment that the version brings along is verified and linked or copied, never changed. Other
    files are read once, a few MiB at a time, and every number is looked at.

    Raises:
        InvalidInput: a file holds what the store cannot: other rows than its header says, numbers
            that are not finite, a key twice; the message names file, row and remedy.
        Corrupt: the segment of the version is damaged.
        Unavailable: a file cannot be read, or the cache cannot be written.
    """
    if tables.segment is not None:
        return adopt_segment(tables.segment, files, cache, on_bytes)
    for file in {table.declared.file for table in tables.used if table.declared.is_segment}:
        _verify(files.path(file), file, on_bytes)
    total = sum(_bytes(table) for table in tables.used)

    def write(folder: Path, name: str) -> None:
        with SegmentBuilder(folder, name) as builder:
            done = 0
            for table in tables.used:
                for read in write_table(builder, table.plan, table.source, table.declared.file):
                    done += read
                    on_bytes(done, total)
            builder.finish()

    return cache.get(_key(tables, files), write, lambda done: on_bytes(min(done, total), total))


def adopt_segment(file: str, files: VersionFiles, cache: SegmentCache, on_bytes: BytesDone) -> Path:
    """Return the cache's name for a segment of the version, which is verified.

    Args:
        file: its name in the version.
        files: of the version.
        cache: of segments.
        on_bytes: told how far it is.

    Raises:
        Corrupt: it is damaged.
        Unavailable: it cannot be read, or the cache cannot be written.
    """
    path, total = files.path(file), files.bytes[file]

    def write(folder: Path, name: str) -> None:
        _verify(path, file, on_bytes)
        link_or_copy(path, folder / name)

    key = f"{_FORMAT} as it is {_digest(file, files)}"
    return cache.get(key, write, lambda done: on_bytes(done, total))


def _verify(path: Path, file: str, on_bytes: BytesDone) -> None:
    try:
        segment = Segment.open(path)
        segment.verify(lambda done: on_bytes(done, segment.bytes))
    except Corrupt as error:
        raise Corrupt(f"{file}: {error.message}; copy it again") from None


def _key(tables: VersionTables, files: VersionFiles) -> str:
    """Everything that the segment's bytes depend on."""
    lines = [_FORMAT]
    for table in tables.used:
        plan = table.plan
        digests = " ".join(_digest(file, files) for file in table.declared.files(files))
        lines.append(f"{plan.name!r} {plan.keys} {plan.dtype} {table.declared.name!r} {digests}")
    return "\n".join(lines)


def _digest(file: str, files: VersionFiles) -> str:
    return files.digests.get(file) or file_sha256(files.path(file))


def write_table(
    builder: SegmentBuilder, plan: PlanTable, source: RowSource, file: str
) -> Iterator[int]:
    """Write one table; yield the bytes of each chunk that was.

    Args:
        builder: of the segment.
        plan: how the store keeps the table.
        source: its rows.
        file: how messages name them.

    Raises:
        InvalidInput: the rows are not what the store can hold.
        Unavailable: they cannot be read.
    """
    try:
        target = builder.table(
            plan.name, plan.dim, row_type=plan.dtype, keys=plan.keys, rows=plan.rows
        )
        for chunk in checked_chunks(source, file, plan.dtype):
            if plan.keys == "dense_id":
                _check_in_order(chunk, file)
            _write_rows(target, chunk, hashed=plan.keys == "hashed", as_int8=plan.dtype == "int8")
            yield chunk.bytes
    except InvalidInput as error:
        known = error.message.startswith(f"{file}: ")
        raise InvalidInput(error.message if known else f"{file}: {error.message}") from None


def _write_rows(target: TableBuilder, chunk: RowChunk, *, hashed: bool, as_int8: bool) -> None:
    keys = chunk.row_keys() if hashed else None
    if chunk.scale is None or chunk.bias is None:
        target.add(keys, chunk.values)  # type: ignore[arg-type]
    elif as_int8:
        target.add_int8(keys, chunk.values, chunk.scale, chunk.bias)  # type: ignore[arg-type]
    else:
        target.add(keys, chunk.numbers())


def _check_in_order(chunk: RowChunk, file: str) -> None:
    """Check that keys are row numbers."""
    if chunk.keys is None:
        return
    expected = np.arange(chunk.first_row, chunk.first_row + len(chunk.keys), dtype=np.uint64)
    wrong = chunk.keys != expected
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InvalidInput(
            f"{file}: row {chunk.first_row + at}: found key {int(chunk.keys[at].view(np.int64))}; "
            f"keys: dense_id wants row numbers in order, here {chunk.first_row + at}; sort the "
            "table, or use keys: hashed"
        )


def _bytes(table: VersionTable) -> int:
    return table.source.rows * (8 + 4 * table.source.dim)
