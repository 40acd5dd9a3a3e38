"""Writing an item table: columns of a Parquet file, put into the order of hashed ids.

Columns are read one at a time and in pieces, and scattered into files that are mapped; in memory
are some 48 bytes for each item, whatever its columns hold. See docs/formats.md, "Item tables".
"""

import fcntl
import mmap
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.cache_entries import sync
from anabranch_model_store.item_chunks import ItemChunk, ItemFile
from anabranch_model_store.item_order import ItemOrder
from anabranch_runtime.checksums import crc32c
from anabranch_runtime.ranking.item_columns import ItemColumn
from anabranch_runtime.ranking.item_keys import directory, spans
from anabranch_runtime.ranking.item_layout import (
    FIRST,
    FORMAT,
    HASH,
    HEADER,
    HEADER_CHECKSUM,
    KEY,
    ItemForm,
    ItemHeader,
    all_forms,
    arrow_type,
    feature_column,
    pyarrow,
)

__all__ = ["ItemSource", "write_item_table"]

_TYPES: Final = {"int64": np.int64, "float32": np.float32, "string": np.uint8}
_CHECKED: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class ItemSource:
    """What an item table is made of.

    Attributes:
        file: that holds it.
        order: of its rows.
        key: column of ids.
        columns: feature -> column of the file.
        forms: feature -> form of its values.
    """

    file: ItemFile
    order: ItemOrder
    key: str
    columns: Mapping[str, str]
    forms: Mapping[str, ItemForm]


def write_item_table(
    source: ItemSource, folder: Path, name: str, on_column: Callable[[int], None]
) -> None:
    """Write an item table, whole or not at all.

    Args:
        source: what it is made of.
        folder: where it goes.
        name: of the file there.
        on_column: told how many columns are done.

    Raises:
        InvalidInput: a value does not go into the form of its feature.
        OSError: the folder cannot be written, or the disk is full.
    """
    order = source.order
    arrow = pyarrow(source.file.what)
    header = ItemHeader(
        format=FORMAT,
        rows=source.file.rows,
        key=order.key,
        seed=order.seed,
        longest=order.longest,
        features=dict(source.forms),
        checksums={},
    )
    read = {KEY: source.key, **{feature_column(f): c for f, c in source.columns.items()}}
    made: dict[str, ItemColumn] = {}
    for column, form in all_forms(header).items():
        if column == HASH:
            made[column] = ItemColumn(form, order.hashes.view(np.int64))
        elif column == FIRST:
            made[column] = ItemColumn(form, directory(order.hashes))
        else:
            made[column] = _ordered(source, read[column], form, folder)
        on_column(len(made))
    checksums = {
        column: {part: _checksum(array) for part, array in one.parts()}
        for column, one in made.items()
    }
    header = msgspec.structs.replace(header, checksums=checksums)
    _write(header, made, arrow, folder, name)


def _ordered(source: ItemSource, column: str, form: ItemForm, folder: Path) -> ItemColumn:
    """Return a column in the order of the table."""
    file, order = source.file, source.order
    rows = file.rows
    counts = np.zeros(rows, np.int64) if form.ragged else None
    sizes = np.zeros(rows, np.int64) if form.type == "string" else None
    valid = np.ones(rows, np.bool_)
    for chunk in file.chunks(column, form):
        at = order.places[chunk.first_row : chunk.first_row + chunk.rows]
        if chunk.valid is not None:
            valid[at] = chunk.valid
        if counts is not None and chunk.counts is not None:
            counts[at] = chunk.counts
        if sizes is not None:
            sizes[at] = _row_bytes(chunk)
    offsets = None if counts is None else _starts(counts)
    total = rows * form.width if offsets is None else int(offsets[-1])
    bytes_at = None if sizes is None else _starts(sizes)
    values = _scratch(total if bytes_at is None else int(bytes_at[-1]), _TYPES[form.type], folder)
    texts = None if bytes_at is None else _scratch(total + 1, np.int64, folder)
    weights = _scratch(total, np.float32, folder) if form.weighted else None
    for chunk in file.chunks(column, form):
        at = order.places[chunk.first_row : chunk.first_row + chunk.rows]
        places = _places(chunk, at, form.width, offsets)
        if texts is None or bytes_at is None:
            values[places] = chunk.values
        else:
            texts[places + 1] = chunk.text_bytes
            values[spans(bytes_at[at], _row_bytes(chunk))] = chunk.values
        if weights is not None:
            weights[places] = chunk.weights
    if texts is not None:
        np.cumsum(texts, out=texts)
    bits = None if valid.all() else np.packbits(valid, bitorder="little")
    return ItemColumn(form, values, texts, offsets, weights, bits)


def _places(
    chunk: ItemChunk, at: NDArray[np.int64], width: int, offsets: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Return where each value of a chunk goes."""
    if offsets is not None and chunk.counts is not None:
        return spans(offsets[at], chunk.counts)
    if width == 1:
        return at
    return (at[:, None] * width + np.arange(width)).ravel()


def _row_bytes(chunk: ItemChunk) -> NDArray[np.int64]:
    """Return the bytes of the strings of each row."""
    assert chunk.text_bytes is not None
    if chunk.counts is None:
        return chunk.text_bytes
    ends = _starts(chunk.text_bytes)[_starts(chunk.counts)]
    return np.diff(ends)


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def _scratch(count: int, dtype: Any, folder: Path) -> NDArray[Any]:  # noqa: ANN401 (a dtype)
    """Return zeros in a file that goes with the array; its room on the disk is taken at once.

    Raises:
        OSError: there is no room.
    """
    size = count * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(0, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype)


def _checksum(array: NDArray[Any]) -> int:
    data = array.view(np.uint8)
    checksum = 0
    for begin in range(0, len(data), _CHECKED):
        checksum = crc32c(data[begin : begin + _CHECKED], checksum)
    return checksum


def _arrow_array(column: ItemColumn, rows: int, arrow: Any) -> Any:  # noqa: ANN401  # pyarrow has no types
    """Return a column as an Arrow array over the same memory; pyarrow comes without types."""
    form = column.form
    kind = arrow_type(form, arrow)
    parts = {name: arrow.py_buffer(array) for name, array in column.parts()}
    valid = parts.get("validity")
    leaf = [parts["text offsets"], parts["text"]] if form.type == "string" else [parts["values"]]
    if form.ragged:
        assert column.offsets is not None
        count = int(column.offsets[-1])
        one = kind.value_type
        if form.weighted:
            ids = arrow.Array.from_buffers(one.field("ids").type, count, [None, *leaf])
            weights = arrow.Array.from_buffers(arrow.float32(), count, [None, parts["weights"]])
            child = arrow.Array.from_buffers(one, count, [None], children=[ids, weights])
        else:
            child = arrow.Array.from_buffers(one, count, [None, *leaf])
        return arrow.Array.from_buffers(kind, rows, [valid, parts["offsets"]], children=[child])
    if form.width != 1:
        child = arrow.Array.from_buffers(arrow.float32(), rows * form.width, [None, *leaf])
        return arrow.Array.from_buffers(kind, rows, [valid], children=[child])
    return arrow.Array.from_buffers(kind, rows, [valid, *leaf])


def _write(
    header: ItemHeader,
    columns: Mapping[str, ItemColumn],
    arrow: Any,  # noqa: ANN401 (pyarrow has no types)
    folder: Path,
    name: str,
) -> None:
    """Write the file under another name, and give it its own once it is on the disk."""
    text = msgspec.json.encode(header)
    metadata = {HEADER: text, HEADER_CHECKSUM: str(crc32c(text))}
    arrays = [_arrow_array(column, header.rows, arrow) for column in columns.values()]
    fields = [arrow.field(name, array.type) for name, array in zip(columns, arrays, strict=True)]
    schema = arrow.schema(fields, metadata=metadata)
    temporary = folder / f".items-{secrets.token_hex(8)}.tmp"
    options = arrow.ipc.IpcWriteOptions(allow_64bit=True, use_threads=False)
    try:
        with temporary.open("xb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # so that nobody clears it away meanwhile
            with (
                arrow.OSFile(str(temporary), "wb") as sink,
                arrow.ipc.new_file(sink, schema, options=options) as writer,
            ):
                writer.write_batch(arrow.record_batch(arrays, schema=schema))
            sync(temporary)
            temporary.rename(folder / name)
        sync(folder)
    finally:
        temporary.unlink(missing_ok=True)
