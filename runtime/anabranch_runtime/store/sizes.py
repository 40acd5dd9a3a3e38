"""What a store has room for, what is in it, and what a change would do: values in numbers."""

from dataclasses import dataclass
from typing import Final

from anabranch_wire.errors import InvalidInput

__all__ = ["Capacity", "ChangeCounts", "StoreBytes", "TableStats"]

_MOST: Final = 2**32 - 1  # what a generation's table record holds


@dataclass(frozen=True, slots=True)
class Capacity:
    """Room that one table gets in a generation.

    Attributes:
        arena_rows: rows beside those of the base: updated, inserted and deleted ones.
        keys: distinct keys at most, those of the base counted; not looked at for dense ids.
    """

    arena_rows: int
    keys: int

    def __post_init__(self) -> None:
        """Check what any table could have; raises InvalidInput."""
        for what, number in (("arena_rows", self.arena_rows), ("keys", self.keys)):
            if not 0 <= number <= _MOST:
                raise InvalidInput(f"{what}: expected 0 to {_MOST}, got {number}")


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """What a change would do.

    Attributes:
        inserted: keys that were absent.
        updated: keys that get another row.
        deleted: keys that go.
        absent: keys to delete that are not there.
        duplicates: upserts and deletes that a later one of the same key replaced.
    """

    inserted: int
    updated: int
    deleted: int
    absent: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class TableStats:
    """One table of a generation.

    Attributes:
        live_keys: keys that are there at the newest version.
        arena_rows: capacity.
        arena_used: reachable, retired or reserved.
        retired_rows: superseded; they wait until no reader is at an older version.
        slots: of the index.
        used_slots: live, dead or deleted.
        load: live keys per slot; for dense ids 1.
        mean_probe: cache lines of the index per hit, sampled; for dense ids 1.
    """

    live_keys: int
    arena_rows: int
    arena_used: int
    retired_rows: int
    slots: int
    used_slots: int
    load: float
    mean_probe: float


@dataclass(frozen=True, slots=True)
class StoreBytes:
    """Memory that a generation uses.

    Attributes:
        index: of the indexes.
        arena: of arena rows that were touched.
        undo: of undo links that were touched.
        books: of the writer alone.
    """

    index: int
    arena: int
    undo: int
    books: int
