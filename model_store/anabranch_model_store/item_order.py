"""In which order rows of an item table lie: by the hash of their ids, each there once."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.item_chunks import ItemChunk, ItemFile
from anabranch_runtime.ranking.item_keys import hash_integers, hash_strings
from anabranch_runtime.ranking.item_layout import ItemForm
from anabranch_runtime.ranking.requests import ArrayColumn
from anabranch_wire.errors import InvalidInput

__all__ = ["ItemOrder", "order_items"]

_LONGEST: Final = 1024
_MOST_ROWS: Final = 2**31 - 1
_SEEDS: Final = range(8)

KeyType = Literal["int64", "string"]


@dataclass(frozen=True, slots=True, eq=False)
class ItemOrder:
    """Places of the rows of a file.

    Attributes:
        key: type of the ids.
        seed: of their hash.
        longest: bytes of the longest id; 0 for integers.
        hashes: uint64, rising.
        places: int64, for each row of the file its place in the table.
    """

    key: KeyType
    seed: int
    longest: int
    hashes: NDArray[np.uint64]
    places: NDArray[np.int64]


def order_items(file: ItemFile, column: str, key: KeyType) -> ItemOrder:
    """Hash the ids of a file and put them in order.

    Args:
        file: whose rows they are.
        column: of ids.
        key: their type.

    Raises:
        InvalidInput: an id is null, too long, or there twice; the message names rows.
    """
    if file.rows > _MOST_ROWS:
        raise InvalidInput(f"{file.what}: {file.rows} rows; expected at most {_MOST_ROWS}")
    longest = _longest(file, column) if key == "string" else 0
    for seed in _SEEDS:
        hashes = np.zeros(file.rows, np.uint64)
        for chunk in file.chunks(column, ItemForm(key)):
            _check_no_null(file, column, chunk)
            part = slice(chunk.first_row, chunk.first_row + chunk.rows)
            if key == "int64":
                hashes[part] = hash_integers(chunk.values, seed)
            else:
                hashes[part] = hash_strings(_strings(chunk), seed, longest)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        again = np.flatnonzero(hashes[1:] == hashes[:-1])
        if len(again):
            alike = {int(order[at]): int(order[at + 1]) for at in again[:_LONGEST].tolist()}
            _check_different(file, column, key, alike)
            continue  # different strings of one hash
        places = np.empty(file.rows, np.int64)
        places[order] = np.arange(file.rows)
        return ItemOrder(key, seed, longest, hashes, places)
    raise InvalidInput(f"{file.what}: column {column!r}: ids cannot be told apart by their hash")


def _longest(file: ItemFile, column: str) -> int:
    longest = 0
    for chunk in file.chunks(column, ItemForm("string")):
        assert chunk.text_bytes is not None
        most = int(chunk.text_bytes.max(initial=0))
        if most > _LONGEST:
            row = chunk.first_row + int(np.argmax(chunk.text_bytes))
            raise InvalidInput(
                f"{file.what}: column {column!r}, row {row}: an id of {most} bytes; expected at "
                f"most {_LONGEST}"
            )
        longest = max(longest, most)
    return longest


def _check_no_null(file: ItemFile, column: str, chunk: ItemChunk) -> None:
    if chunk.valid is not None and not chunk.valid.all():
        row = chunk.first_row + int(np.argmin(chunk.valid))
        raise InvalidInput(f"{file.what}: column {column!r}, row {row}: the id is null")


def _check_different(file: ItemFile, column: str, key: KeyType, alike: dict[int, int]) -> None:
    """Check that ids in pairs of rows, which have the same hash, are different.

    Raises:
        InvalidInput: some are the same.
    """
    wanted = {*alike, *alike.values()}
    ids: dict[int, int | str] = {}
    for chunk in file.chunks(column, ItemForm(key)):
        rows = [row - chunk.first_row for row in wanted if 0 <= row - chunk.first_row < chunk.rows]
        if key == "int64":
            ids.update((chunk.first_row + row, int(chunk.values[row])) for row in rows)
            continue
        column_of = _strings(chunk)
        assert column_of.offsets is not None
        for row in rows:
            begin, end = column_of.offsets[row : row + 2].tolist()
            ids[chunk.first_row + row] = chunk.values[begin:end].tobytes().decode()
    for one, two in sorted(alike.items()):
        if ids[one] == ids[two]:
            raise InvalidInput(
                f"{file.what}: column {column!r}: id {ids[one]!r} is there twice, in rows {one} "
                f"and {two}"
            )


def _strings(chunk: ItemChunk) -> ArrayColumn:
    assert chunk.text_bytes is not None
    offsets = np.zeros(chunk.rows + 1, np.int64)
    np.cumsum(chunk.text_bytes, out=offsets[1:])
    return ArrayColumn(chunk.values, offsets)
