"""Rows of a table at two snapshots, compared without ever holding either of them in memory.

Rows that lie at the same place of both files are compared as they are read. What does not, and what
deltas changed, goes through temporary files by shares of the keys. In memory are the keys that
deltas changed, one delta's rows, and one share.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.targets import RowChanges
from anabranch_model_store.differences.row_spills import RowSpill, record_bytes
from anabranch_model_store.table_files import RowSource
from anabranch_wire.errors import Corrupt

__all__ = ["RowCounts", "TableRows", "compare_rows"]

Keys = NDArray[np.uint64]
Values = NDArray[np.float32]

SHARE_BYTES: Final = 32 << 20
_MOST_SHARES: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """A table at a snapshot.

    Attributes:
        source: its rows as published.
        layers: what each delta changes of it, one after the other: name of the delta, unlike that
            of others of its version, and what reads its rows.
    """

    source: RowSource
    layers: tuple[tuple[str, Callable[[], RowChanges]], ...] = ()


@dataclass(slots=True)
class RowCounts:
    """What differs.

    Attributes:
        added: keys that only the second one has.
        changed: keys of both whose rows differ.
        removed: keys that only the first one has.
        squares: sum of the squares of all changes of rows that both have; NaN where rows have
            different lengths.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0
    squares: float = 0.0

    def compare(self, before: Values, after: Values) -> None:
        """Count rows (n, dim) and (n, dim) of the same keys."""
        if not len(before):
            return
        if before.shape[1] != after.shape[1]:
            self.changed += len(before)
            self.squares = math.nan
            return
        differ = (before != after) & ~(np.isnan(before) & np.isnan(after))
        rows = np.flatnonzero(differ.any(axis=1))
        if len(rows):
            self.changed += len(rows)
            where = differ[rows]
            with np.errstate(invalid="ignore"):
                change = np.where(where, after[rows].astype(np.float64) - before[rows], 0.0)
            self.squares += float(np.sum(np.square(change)))


def compare_rows(
    before: TableRows | None, after: TableRows | None, folder: Path, *, same_file: bool
) -> RowCounts:
    """Return what differs between a table at two snapshots.

    Args:
        before: at the first one; None where it has no such table.
        after: at the second one.
        folder: for temporary files; takes as much as what has to be compared by key.
        same_file: whether both were published with the same rows, so that only deltas differ.

    Raises:
        AnabranchError: rows cannot be read, or temporary files not be written.
    """
    counts = RowCounts()
    sides = [one for one in (before, after) if one is not None]
    begin = _shared_layers(before, after) if same_file else 0
    touched = _touched(sides, begin)
    if same_file and not len(touched):
        return counts
    dims = [one.source.dim for one in sides]
    rows = 2 * len(touched) if same_file else sum(one.source.rows for one in sides) + len(touched)
    shares = min(_MOST_SHARES, 1 + rows * record_bytes(max(dims)) // SHARE_BYTES)
    spills = [
        RowSpill(folder, f"{name}", dims[-1] if one is None else one.source.dim, shares)
        for name, one in (("before", before), ("after", after))
    ]
    if before is not None and after is not None and same_file:
        for keys, values in _windows(before.source):
            at = _is_in(keys, touched)
            for spill in spills:
                spill.add(keys[at], values[at])
    else:
        _walk(before, after, touched, spills, counts)
    for one, spill in zip((before, after), spills, strict=True):
        _add_layers(one, spill, touched if same_file else None)
    for share in range(shares):
        _compare_share(spills, share, counts)
    return counts


def _shared_layers(before: TableRows | None, after: TableRows | None) -> int:
    """Return how many deltas both begin with, as snapshots of one version."""
    if before is None or after is None:
        return 0
    begin = 0
    for one, other in zip(before.layers, after.layers, strict=False):
        if one[0] != other[0]:
            break
        begin += 1
    return begin


def _touched(sides: list[TableRows], begin: int) -> Keys:
    """Return the keys that deltas change, from the `begin`th on, rising."""
    found = np.empty(0, np.uint64)
    for side in sides:
        for _, read in side.layers[begin:]:
            changes = read()
            keys = np.concatenate([changes.keys, changes.deleted]).view(np.uint64)
            found = np.union1d(found, keys)
    return found


def _is_in(keys: Keys, among: Keys) -> NDArray[np.bool_]:
    """Return which keys are among others, which rise."""
    if not len(among):
        return np.zeros(len(keys), np.bool_)
    at = np.minimum(np.searchsorted(among, keys), len(among) - 1)
    found: NDArray[np.bool_] = among[at] == keys
    return found


def _windows(source: RowSource) -> Iterator[tuple[Keys, Values]]:
    """Yield keys and rows as they lie in a file."""
    for chunk in source.chunks():
        yield chunk.row_keys(), chunk.numbers()


@dataclass(slots=True)
class _Reader:
    """Reads a file by pieces of any size."""

    pieces: Iterator[tuple[Keys, Values]]
    keys: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    values: Values = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def fill(self) -> int:
        """Return how many rows can be taken; 0 at the end."""
        while not len(self.keys):
            piece = next(self.pieces, None)
            if piece is None:
                return 0
            self.keys, self.values = piece
        return len(self.keys)

    def take(self, count: int) -> tuple[Keys, Values]:
        """Return the next rows."""
        taken = self.keys[:count], self.values[:count]
        self.keys, self.values = self.keys[count:], self.values[count:]
        return taken


def _walk(
    before: TableRows | None,
    after: TableRows | None,
    touched: Keys,
    spills: list[RowSpill],
    counts: RowCounts,
) -> None:
    """Compare what lies at the same place of both files, and keep the rest for later."""
    readers = [
        _Reader(iter(()) if one is None else _windows(one.source)) for one in (before, after)
    ]
    while True:
        counted = [reader.fill() for reader in readers]
        if not any(counted):
            return
        count = min(counted) or max(counted)
        taken = [
            reader.take(count) if there else None
            for reader, there in zip(readers, counted, strict=True)
        ]
        first, second = taken
        if first is not None and second is not None:
            meet = (first[0] == second[0]) & ~_is_in(first[0], touched)
            counts.compare(first[1][meet], second[1][meet])
            apart = ~meet
            spills[0].add(first[0][apart], first[1][apart])
            spills[1].add(second[0][apart], second[1][apart])
        elif first is not None:
            spills[0].add(*first)
        elif second is not None:
            spills[1].add(*second)


def _add_layers(side: TableRows | None, spill: RowSpill, only: Keys | None) -> None:
    """Add what deltas change, of all keys or only of some."""
    if side is None:
        return
    for name, read in side.layers:
        changes = read()
        if len(changes.keys) and changes.values.shape[1] != spill.dim:
            found = changes.values.shape[1]
            raise Corrupt(f"delta {name}: rows of {found} numbers; the table has {spill.dim}")
        keys, deleted = changes.keys.view(np.uint64), changes.deleted.view(np.uint64)
        values = changes.values
        if only is not None:
            at = _is_in(keys, only)
            keys, values = keys[at], values[at]
            deleted = deleted[_is_in(deleted, only)]
        spill.add(keys, values)
        spill.add(deleted, None)


def _compare_share(spills: list[RowSpill], share: int, counts: RowCounts) -> None:
    before, after = (spill.take(share) for spill in spills)
    both, first, second = np.intersect1d(
        before.keys, after.keys, assume_unique=True, return_indices=True
    )
    counts.removed += len(before.keys) - len(both)
    counts.added += len(after.keys) - len(both)
    counts.compare(before.values[first], after.values[second])
