"""Hashes of item ids and the search for them: item tables are written and read with the same ones.

Rows of a table lie in the order of their 64-bit hash. As hashes are spread evenly, a directory with
an entry for each row leads to within a few rows of any of them; see docs/formats.md, "Item tables".
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.requests import ArrayColumn

__all__ = ["directory", "find_rows", "hash_integers", "hash_strings", "same_strings", "spans"]

_SHIFT: Final = np.uint64(33)
_HALF: Final = np.uint64(32)
_FACTORS: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
"""Of the finaliser of MurmurHash3 (Austin Appleby), which maps 64 bits to 64 bits one to one."""
_WORD: Final = 8
_PIECE: Final = 1 << 20
"""Bytes that are compared at a time."""
_MASKS: Final = np.array([2 ** (8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
"""By the bytes of a word that count."""


def hash_integers(keys: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return a hash of each key; different keys have different ones."""
    return _mixed(keys.view(np.uint64) ^ np.uint64(seed))


def hash_strings(column: ArrayColumn, seed: int, longest: int) -> NDArray[np.uint64]:
    """Return a hash of each string of a column; of those longer than `longest` bytes, some number.

    Args:
        column: of strings; `lengths` and `missing` are not looked at.
        seed: of the table.
        longest: bytes that count.
    """
    assert column.offsets is not None
    words = _Words(column)
    lengths = np.diff(column.offsets)
    lengths = np.where(lengths > longest, 0, lengths)
    hashes = _mixed(lengths.view(np.uint64) ^ np.uint64(seed))
    begins = column.offsets[:-1]
    for at in range(-(-int(lengths.max(initial=0)) // _WORD)):
        left = lengths - at * _WORD
        rows = np.flatnonzero(left > 0)
        if len(rows) == len(hashes):
            hashes = _mixed(hashes ^ words.take(begins + at * _WORD, left))
        else:
            places = begins[rows] + at * _WORD
            hashes[rows] = _mixed(hashes[rows] ^ words.take(places, left[rows]))
    return hashes


def same_strings(
    left: ArrayColumn, rows: NDArray[np.int64], right: ArrayColumn, others: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether strings `rows` of one column are those of `others` of another, one by one."""
    assert left.offsets is not None
    assert right.offsets is not None
    begins, other_begins = left.offsets.take(rows), right.offsets.take(others)
    lengths = left.offsets.take(rows + 1) - begins
    same: NDArray[np.bool_] = lengths == right.offsets.take(others + 1) - other_begins
    at = np.flatnonzero(same & (lengths > 0))
    step = max(1, _PIECE // int(lengths.max(initial=1)))
    for first in range(0, len(at), step):
        part = at[first : first + step]
        sizes = lengths[part]
        differ = _bytes(left, begins[part], sizes) != _bytes(right, other_begins[part], sizes)
        if differ.any():
            starts = np.cumsum(sizes) - sizes
            same[part[np.logical_or.reduceat(differ, starts)]] = False
    return same


def directory(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return for each of as many equal parts of the hashes' range the first row that is not before.

    Args:
        hashes: rising; fewer than 2^32.
    """
    rows = len(hashes)
    return np.searchsorted(_parts(hashes, rows), np.arange(rows, dtype=np.uint64))


def find_rows(
    table: NDArray[np.uint64], first: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return the row of each hash; -1 where the table has none.

    Args:
        table: hashes of its rows, rising.
        first: its directory.
        hashes: to find.
    """
    rows = len(table)
    if rows == 0:
        return np.full(len(hashes), -1, np.int64)
    found = first.take(_parts(hashes, rows).view(np.int64))
    before = np.flatnonzero(_is_before(table, found, hashes))
    while len(before):
        found[before] += 1
        before = before[_is_before(table, found[before], hashes[before])]
    found[(found == rows) | (table.take(found, mode="clip") != hashes)] = -1
    return found


def spans(begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of spans, one after another: 5, 6, 9 for spans of 2 at 5 and of 1 at 9."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(total)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = numbers ^ (numbers >> _SHIFT)
    for factor in _FACTORS:
        mixed *= factor
        mixed ^= mixed >> _SHIFT
    return mixed


def _parts(hashes: NDArray[np.uint64], rows: int) -> NDArray[np.uint64]:
    """Return in which of `rows` equal parts of the range of hashes each one lies."""
    return ((hashes >> _HALF) * np.uint64(rows)) >> _HALF


def _is_before(
    table: NDArray[np.uint64], rows: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    before: NDArray[np.bool_] = table.take(rows, mode="clip") < hashes
    return before & (rows < len(table))


def _bytes(
    column: ArrayColumn, begins: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Return the bytes of strings, one string after another; a view where they lie like that."""
    values = column.values.view(np.uint8)
    first, end = int(begins[0]), int(begins[-1] + sizes[-1])
    if (begins[1:] == (begins + sizes)[:-1]).all():
        return values[first:end]
    return values.take(spans(begins, sizes))


class _Words:
    """Strings of a column as words of 8 bytes, the last of each filled up with zeros."""

    def __init__(self, column: ArrayColumn) -> None:
        values = column.values.view(np.uint8)
        if len(values) < _WORD:
            values = np.concatenate([values, np.zeros(_WORD, np.uint8)])
        self._last = len(values) - _WORD
        # A word at every byte; whoever takes some of them copies no others.
        self._every: NDArray[np.uint64] = np.ndarray(
            (self._last + 1,), np.uint64, values, strides=(1,)
        )

    def take(self, places: NDArray[np.int64], left: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the words at some places, of strings that have so many bytes left from there."""
        from_ = np.minimum(places, self._last)
        words = self._every[from_] >> ((places - from_) << 3).view(np.uint64)
        words &= _MASKS.take(left, mode="clip")
        return words
