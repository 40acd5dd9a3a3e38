"""When the rows of a version need more room than their generation has, and how much.

Policy on plain values: no clock, thread or memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from anabranch_runtime.store import Capacity, TableStats

__all__ = ["grown", "is_short"]

_NEARLY_FULL: Final = 0.75
"""Share of a table's arena from which on a new generation is made, beside traffic."""

_MOST_SLOTS: Final = 0.7
"""Share of an index's slots in use from which on that is done; at 0.75 the writer refuses keys."""

_FACTOR: Final = 2
"""Arena rows of a table that grows, over what is in it."""

_SPARE_KEYS: Final = 4
"""A table that has too few keys gets one in so many beyond what it needs."""

_NOTHING: Final[Mapping[int, int]] = {}


def is_short(
    stats: Sequence[TableStats],
    capacities: Sequence[Capacity],
    incoming: Mapping[int, int] = _NOTHING,
) -> bool:
    """Return whether a generation should give way to one with more room.

    Args:
        stats: of each table.
        capacities: of each table.
        incoming: table -> rows that a change is about to bring. A change has to fit; without one,
            a generation is short when it is nearly full.
    """
    if not incoming:
        return any(
            table.arena_used > _NEARLY_FULL * capacity.arena_rows
            or table.used_slots > _MOST_SLOTS * table.slots > 0
            for _, table, capacity in _tables(stats, capacities)
        )
    return any(
        table.arena_used + coming > capacity.arena_rows
        or table.used_slots > _MOST_SLOTS * table.slots > 0
        for index, table, capacity in _tables(stats, capacities)
        if (coming := incoming.get(index, 0))
    )


def grown(
    stats: Sequence[TableStats],
    capacities: Sequence[Capacity],
    most_keys: Sequence[int],
    incoming: Mapping[int, int] = _NOTHING,
) -> tuple[Capacity, ...]:
    """Return the room of a generation that takes over; never less than there is.

    A new generation begins without retired rows and dead keys, so a table that had room enough for
    what lives keeps its size.

    Args:
        stats: of each table.
        capacities: of each table.
        most_keys: that each table may have.
        incoming: table -> rows that a change is about to bring.
    """
    sizes = []
    for index, table, capacity in _tables(stats, capacities):
        coming = incoming.get(index, 0)
        rows = table.arena_used - table.retired_rows + coming
        keys = table.live_keys + coming
        is_wide = rows <= _NEARLY_FULL * capacity.arena_rows
        sizes.append(
            Capacity(
                arena_rows=capacity.arena_rows if is_wide else _FACTOR * rows,
                keys=_more_keys(capacity.keys, keys, most_keys[index]),
            )
        )
    return tuple(sizes)


def _more_keys(room: int, needed: int, most: int) -> int:
    """Return room for the keys that are needed, and some to spare, up to what a table may have."""
    if needed <= room:
        return room
    return max(room, min(most, needed + needed // _SPARE_KEYS))


def _tables(
    stats: Sequence[TableStats], capacities: Sequence[Capacity]
) -> Iterator[tuple[int, TableStats, Capacity]]:
    for index, (table, capacity) in enumerate(zip(stats, capacities, strict=True)):
        yield index, table, capacity
