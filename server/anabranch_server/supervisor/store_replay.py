"""A fresh generation brought to where the rows of a version were, before anybody reads it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from anabranch_runtime.store import Capacity, Segment, StoreWriter
from anabranch_runtime.store import Change as RowChange
from anabranch_server.supervisor.store_sizes import check_room, generation_bytes, less
from anabranch_wire.errors import Unavailable

__all__ = ["replayed"]

_STEP_ROWS: Final = 1 << 20


def replayed(
    segment: Segment,
    capacities: Sequence[Capacity],
    fills: Iterable[Callable[[RowChange], None]],
    available_bytes: int | None,
) -> tuple[StoreWriter, Sequence[Capacity]]:
    """Make a generation and change its rows; returns its writer, and what it has room for.

    Where changes do not fit it is given more room. Takes as long as that takes; any thread.

    Args:
        segment: what lies under it.
        capacities: room to begin with.
        fills: what changes, one store version after the other.
        available_bytes: memory that it may take; None where that is not known.

    Raises:
        TooLarge: there is no memory for it.
        AnabranchError: what `fills` raise.
        OSError: there is no memory to be had.
    """
    check_room(segment.tables, capacities, available_bytes)
    writer = StoreWriter.create(segment, capacities)
    for fill in fills:
        while not _change(writer, fill):
            left = less(available_bytes, generation_bytes(segment.tables, capacities))
            capacities = [Capacity(2 * one.arena_rows, 2 * one.keys) for one in capacities]
            check_room(segment.tables, capacities, left)
            growth = writer.grow(capacities)
            while not growth.step(_STEP_ROWS):
                pass
            writer = growth.finish()
        writer.reclaim(writer.version)  # nobody reads it yet
    return writer, capacities


def _change(writer: StoreWriter, fill: Callable[[RowChange], None]) -> bool:
    """Change rows; whether there was room for that."""
    try:
        with writer.begin() as change:
            fill(change)
            change.apply()
    except Unavailable:
        return False
    return True
