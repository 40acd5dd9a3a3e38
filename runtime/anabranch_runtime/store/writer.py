"""The writer of a store: changes that readers notice whole or not at all, and growth.

Invariant: of a generation there is one writer, and one thread at a time works with it, with its
change and with its growth; a second one is refused with RuntimeError.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime import _native
from anabranch_runtime.store.generation import Generation
from anabranch_runtime.store.integers import (
    MOST_UINT32,
    expect_between,
    expect_table,
    expect_version,
)
from anabranch_runtime.store.rows import (
    Keys,
    bf16_pieces,
    contiguous_keys,
    float_pieces,
    int8_pieces,
)
from anabranch_runtime.store.segments import Segment
from anabranch_runtime.store.sizes import Capacity, ChangeCounts, StoreBytes, TableStats
from anabranch_wire.errors import InvalidInput, Unavailable

__all__ = ["Change", "Growth", "StoreFull", "StoreWriter"]


class StoreFull(Unavailable):
    """A generation has no room for what it was given; has the numbers."""


class StoreWriter:
    """The only writer of a generation.

    Readers of other processes map `fd`, and read at `version` once they are told of it.
    """

    def __init__(self, native: _native.StoreWriter, segment: Segment) -> None:
        """Wrap what `create` or a growth made."""
        self._native = native
        self._segment = segment
        self._generation = Generation(native.generation(), segment)

    @classmethod
    def create(cls, segment: Segment, capacities: Sequence[Capacity], *, version: int = 1) -> Self:
        """Make a new generation over a segment, in sealed shared memory.

        Args:
            segment: what lies under it.
            capacities: one per table.
            version: that readers are to pass first, at least 1.

        Raises:
            InvalidInput: a capacity or the version cannot be.
            OSError: there is no memory to be had.
        """
        expect_version(version)
        return cls(_native.StoreWriter.create(segment.native, _rooms(capacities), version), segment)

    @property
    def fd(self) -> int:
        """Descriptor for readers, closed with the writer."""
        return self._native.fd

    @property
    def version(self) -> int:
        """Store version of the last change that was applied."""
        return self._native.version

    @property
    def generation(self) -> Generation:
        """What readers map, as this process sees it."""
        return self._generation

    def begin(self) -> "Change":
        """Begin a change.

        Raises:
            RuntimeError: one is open.
            Unavailable: the versions of this generation are used up.
        """
        return Change(self._native.begin(), self._segment)

    def restore(self, version: int) -> "Change":
        """Begin a change that gives every key the row it had at a version.

        Raises:
            InvalidInput: that version is not retained: rows that only it saw may be gone.
            Unavailable: there is no room for the rows.
            RuntimeError: a change is open.
        """
        expect_version(version)
        return Change(self._native.restore(version), self._segment)

    def reclaim(self, floor: int) -> int:
        """Free what no reader at `floor` or above can see; returns how many rows that were.

        Args:
            floor: the oldest version that anybody may still read, at most `version`.

        Raises:
            InvalidInput: it is above `version`.
            RuntimeError: a change is open.
        """
        expect_between("floor", floor, 0, MOST_UINT32)
        return self._native.reclaim(floor)

    def stats(self, table: int) -> TableStats:
        """Return how full a table is.

        Raises:
            InvalidInput: there is no such table.
        """
        expect_table(table, self._segment.tables)
        return TableStats(*self._native.stats(table))

    def memory(self) -> StoreBytes:
        """Return how much memory is in use."""
        return StoreBytes(*self._native.memory())

    def huge_page_ratio(self) -> float:
        """Return the share of the generation that lies in huge pages; 0 where nobody tells."""
        return self._native.huge_page_ratio()

    def grow(self, capacities: Sequence[Capacity]) -> "Growth":
        """Begin a generation with other room, for the rows that are visible now.

        Raises:
            InvalidInput: a capacity cannot be.
            OSError: there is no memory to be had.
            RuntimeError: a growth is open.
        """
        return Growth(self._native.grow(_rooms(capacities)), self._segment)


class Change:
    """A change that is prepared, and that nobody sees before `apply`.

    A context manager: leaving it without `apply` gives back everything it took. So does an error,
    after which it is closed. Of several rows for a key the last wins, deletes included.
    """

    def __init__(self, native: _native.Change, segment: Segment) -> None:
        """Made by `StoreWriter.begin` and `restore`."""
        self._native = native
        self._segment = segment
        self._applied: ChangeCounts | None = None
        self.version = native.version
        """Store version that `apply` makes."""

    @property
    def counts(self) -> ChangeCounts:
        """What it does, so far; also once it is applied."""
        return ChangeCounts(*self._native.counts()) if self._applied is None else self._applied

    def upsert(
        self, table: int, keys: Keys, values: NDArray[np.float32] | NDArray[np.float16]
    ) -> None:
        """Give keys new rows, rounded to the table's row type.

        Args:
            table: its number.
            keys: (n,).
            values: (n, dim).

        Raises:
            InvalidInput: an array of another type or shape, a dense id that is out of range, or
                numbers that int8 rows cannot hold.
            StoreFull: the generation has no room; has the numbers.
        """
        with _closed_on_error(self):
            expect_table(table, self._segment.tables)
            for piece_keys, piece in float_pieces(keys, values):
                self._native.upsert(table, piece_keys, piece)

    def upsert_bf16(self, table: int, keys: Keys, bits: NDArray[np.uint16]) -> None:
        """Give keys rows of bfloat16, as the upper halves of float32; otherwise as `upsert`."""
        with _closed_on_error(self):
            expect_table(table, self._segment.tables)
            for piece_keys, piece in bf16_pieces(keys, bits):
                self._native.upsert(table, piece_keys, piece)

    def upsert_int8(
        self,
        table: int,
        keys: Keys,
        values: NDArray[np.int8],
        scale: NDArray[np.float16],
        bias: NDArray[np.float16],
    ) -> None:
        """Give keys of an int8 table rows `scale * values + bias`; otherwise as `upsert`.

        Args:
            table: its number.
            keys: (n,).
            values: (n, dim).
            scale: (n,), finite.
            bias: (n,), finite.
        """
        with _closed_on_error(self):
            tables = self._segment.tables
            expect_table(table, tables)
            if tables[table].row_type != "int8":
                raise InvalidInput(f"int8 rows for a table of {tables[table].row_type} rows")
            for piece_keys, piece in int8_pieces(keys, values, scale, bias):
                self._native.upsert_encoded(table, piece_keys, piece)

    def erase(self, table: int, keys: Keys) -> None:
        """Delete keys of a hashed table.

        Args:
            table: its number.
            keys: (n,).

        Raises:
            InvalidInput: an array of another type or shape, or the table has dense ids.
            StoreFull: the generation has no room; has the numbers.
        """
        with _closed_on_error(self):
            expect_table(table, self._segment.tables)
            self._native.erase(table, contiguous_keys(keys))

    def apply(self) -> None:
        """Make the change under `version`. Does not fail and does not wait; once."""
        counts = self.counts
        self._native.apply()
        self._applied = counts

    def close(self) -> None:
        """Give back what it took, unless it was applied; to be called any number of times."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Growth:
    """A new generation in the making; the old writer goes on applying changes meanwhile.

    After an error it is closed.
    """

    def __init__(self, native: _native.Growth, segment: Segment) -> None:
        """Made by `StoreWriter.grow`."""
        self._native = native
        self._segment = segment

    def step(self, rows: int) -> bool:
        """Copy about so many more rows; returns whether all are copied.

        Once they are, further steps catch up with what changed meanwhile, so that `finish` has less
        to do.

        Raises:
            StoreFull: the new room is not enough; has the numbers.
        """
        with _closed_on_error(self):
            return self._native.step(rows)

    def finish(self) -> StoreWriter:
        """Catch up with what changed since; returns the new writer, at the same version.

        No change may be open, and the old writer may apply none from here on.

        Raises:
            StoreFull: the new room is not enough; has the numbers.
        """
        with _closed_on_error(self):
            return StoreWriter(self._native.finish(), self._segment)

    def close(self) -> None:
        """Give up, unless it is finished; to be called any number of times."""
        self._native.close()


@contextmanager
def _closed_on_error(one: Change | Growth) -> Iterator[None]:
    """Close what failed half way: it can only be dropped."""
    try:
        yield
    except Unavailable as full:
        one.close()
        raise StoreFull(full.message) from None
    except BaseException:
        one.close()
        raise


def _rooms(capacities: Sequence[Capacity]) -> list[tuple[int, int]]:
    return [(capacity.arena_rows, capacity.keys) for capacity in capacities]
