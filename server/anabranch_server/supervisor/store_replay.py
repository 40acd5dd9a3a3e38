"""A fresh generation brought to where the rows of a version were, before anybody reads it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from anabranch_runtime.store import Capacity, Segment, SegmentTable, StoreFull, StoreWriter
from anabranch_runtime.store import Change as RowChange
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.store_sizes import check_room, generation_bytes, less
from anabranch_wire.plan import MAX_ROWS

__all__ = ["replayed"]

_STEP_ROWS: Final = 1 << 20

_ROWS_EACH: Final = 4
"""Arena rows for each key: of before, deleted, of now, and one to spare."""


def replayed(
    segment: Segment,
    capacities: Sequence[Capacity],
    most_keys: Sequence[int],
    fills: Iterable[Callable[[RowChange], None]],
    available_bytes: int | None,
) -> tuple[StoreWriter, Sequence[Capacity]]:
    """Make a generation and change its rows; returns its writer, and what it has room for.

    Where changes do not fit it is given more room. Takes as long as that takes; any thread.

    Args:
        segment: what lies under it.
        capacities: room to begin with.
        most_keys: that each table may have.
        fills: what changes, one store version after the other.
        available_bytes: memory that it may take; None where that is not known.

    Raises:
        TooLarge: there is no memory for it.
        NoRoom: what changes is more than the tables may have.
        AnabranchError: what `fills` raise.
        OSError: there is no memory to be had.
    """
    capacities = list(capacities)
    check_room(segment.tables, capacities, available_bytes)
    writer = StoreWriter.create(segment, capacities)
    for fill in fills:
        is_fresh = False
        while (full := _change(writer, fill)) is not None:
            left = less(available_bytes, generation_bytes(segment.tables, capacities))
            wider = _doubled(segment.tables, capacities, most_keys)
            if is_fresh and wider == capacities:
                raise NoRoom(
                    f"{full.message}; a table has no more keys than `capacity.max_rows` of its "
                    "version's model.yaml"
                )
            capacities = wider
            check_room(segment.tables, capacities, left)
            growth = writer.grow(capacities)
            while not growth.step(_STEP_ROWS):
                pass
            writer = growth.finish()
            is_fresh = True  # no deleted key holds a slot there
        writer.reclaim(writer.version)  # nobody reads it yet
    return writer, capacities


def _change(writer: StoreWriter, fill: Callable[[RowChange], None]) -> StoreFull | None:
    """Change rows; returns what was said where there was no room for that."""
    with writer.begin() as change:
        try:
            fill(change)
        except StoreFull as full:
            return full
        change.apply()
    return None


def _doubled(
    tables: Sequence[SegmentTable], capacities: Sequence[Capacity], most_keys: Sequence[int]
) -> list[Capacity]:
    """Return twice the room, as far as a table may have that."""
    return [
        Capacity(
            arena_rows=max(room.arena_rows, min(2 * room.arena_rows, _most_rows(table, most))),
            keys=max(room.keys, min(2 * room.keys, most)),
        )
        for table, room, most in zip(tables, capacities, most_keys, strict=True)
    ]


def _most_rows(table: SegmentTable, most_keys: int) -> int:
    """Return the arena rows that a change may need, whatever it does to so many keys."""
    return min(_ROWS_EACH * max(table.rows, most_keys), MAX_ROWS - table.rows)
