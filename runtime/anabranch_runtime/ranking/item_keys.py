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
    rows = np.flatnonzero(lengths)
    at = 0
    while len(rows):
        hashes[rows] = _mixed(hashes[rows] ^ words.take(rows, at))
        at += 1
        rows = rows[lengths[rows] > at * _WORD]
    return hashes


def same_strings(
    left: ArrayColumn, rows: NDArray[np.int64], right: ArrayColumn, others: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether strings `rows` of one column are those of `others` of another, one by one."""
    assert left.offsets is not None
    assert right.offsets is not None
    lengths = left.offsets[rows + 1] - left.offsets[rows]
    same: NDArray[np.bool_] = lengths == right.offsets[others + 1] - right.offsets[others]
    words, other_words = _Words(left), _Words(right)
    open_ = np.flatnonzero(same & (lengths > 0))
    at = 0
    while len(open_):
        alike = words.take(rows[open_], at) == other_words.take(others[open_], at)
        same[open_[~alike]] = False
        at += 1
        open_ = open_[alike & (lengths[open_] > at * _WORD)]
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


class _Words:
    """Strings of a column as words of 8 bytes, the last of each filled up with zeros."""

    def __init__(self, column: ArrayColumn) -> None:
        assert column.offsets is not None
        values = column.values.view(np.uint8)
        if len(values) < _WORD:
            values = np.concatenate([values, np.zeros(_WORD, np.uint8)])
        self._offsets = column.offsets
        self._last = len(values) - _WORD
        # A word at every byte; whoever takes some of them copies no others.
        self._every: NDArray[np.uint64] = np.ndarray(
            (self._last + 1,), np.uint64, values, strides=(1,)
        )

    def take(self, rows: NDArray[np.int64], at: int) -> NDArray[np.uint64]:
        """Return word `at` of strings that have one."""
        begins, ends = self._offsets.take(rows), self._offsets.take(rows + 1)
        places = begins + at * _WORD if at else begins
        from_ = np.minimum(places, self._last)
        words = self._every[from_] >> ((places - from_) << 3).view(np.uint64)
        words &= _MASKS.take(ends - places, mode="clip")
        return words
