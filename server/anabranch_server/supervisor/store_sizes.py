"""How many bytes tables take in memory; the layout is in docs/formats.md."""

from collections.abc import Sequence
from typing import Final

from anabranch_model_store.row_formats import TableSize
from anabranch_runtime.store import Capacity, SegmentTable, TableStats, row_stride
from anabranch_wire.errors import TooLarge
from anabranch_wire.plan import MAX_ROWS
from anabranch_wire.plan import Capacity as PlannedCapacity

__all__ = [
    "arena_bytes",
    "base_bytes",
    "check_room",
    "generation_bytes",
    "index_bytes",
    "less",
    "with_room_for_all",
]

_SLOT: Final = 16
_ROW_VERSION: Final = 8


def base_bytes(table: SegmentTable) -> int:
    """Return the bytes of a table's rows as published."""
    return table.rows * row_stride(table.row_type, table.dim)


def arena_bytes(table: SegmentTable, stats: TableStats) -> int:
    """Return the bytes of a table's changed rows."""
    return stats.arena_used * row_stride(table.row_type, table.dim)


def index_bytes(table: SegmentTable, stats: TableStats) -> int:
    """Return the bytes in which the rows of a table are found."""
    return table.rows * _ROW_VERSION if table.keys == "dense_id" else stats.slots * _SLOT


def generation_bytes(tables: Sequence[SegmentTable], capacities: Sequence[Capacity]) -> int:
    """Return the memory of a full generation: indexes, changed rows and undo links."""
    return sum(
        TableSize(table.rows, table.dim, table.row_type, table.keys).generation_bytes(
            PlannedCapacity(keys=capacity.keys, arena_rows=capacity.arena_rows)
        )
        for table, capacity in zip(tables, capacities, strict=True)
    )


def check_room(
    tables: Sequence[SegmentTable],
    capacities: Sequence[Capacity],
    available_bytes: int | None,
    *,
    copied_bytes: int = 0,
) -> None:
    """Check that there is memory for a generation.

    Args:
        tables: of the segment below it.
        capacities: what it is to have room for.
        available_bytes: memory that it may take; None where that is not known.
        copied_bytes: of the segment, where that is to be copied into memory first.

    Raises:
        TooLarge: there is not; the message has the numbers.
    """
    needed = generation_bytes(tables, capacities)
    if available_bytes is not None and needed + copied_bytes > available_bytes:
        copy = f", and a copy of their rows {copied_bytes}" if copied_bytes else ""
        raise TooLarge(
            f"index and room for changed rows of the tables need {needed} bytes{copy}; the machine "
            f"has {available_bytes} left"
        )


def with_room_for_all(
    tables: Sequence[SegmentTable], capacities: Sequence[Capacity], available_bytes: int | None
) -> list[Capacity]:
    """Return capacities with which every row of a table may change, and those that come on top.

    Room takes memory only where it is used. A table that has it is never moved to a new generation
    because its rows change, which takes seconds where there are millions of them.

    Args:
        tables: of the segment below.
        capacities: room that there has to be.
        available_bytes: memory that a generation may take; None where that is not known. Where half
            of it would not do for all that room, `capacities` are returned as they are.
    """
    wide = [
        Capacity(
            arena_rows=min(capacity.arena_rows + table.rows, MAX_ROWS - table.rows)
            if capacity.arena_rows < table.rows
            else capacity.arena_rows,
            keys=capacity.keys,
        )
        for table, capacity in zip(tables, capacities, strict=True)
    ]
    if available_bytes is not None and 2 * generation_bytes(tables, wide) > available_bytes:
        return list(capacities)
    return wide


def less(available_bytes: int | None, taken_bytes: int) -> int | None:
    """Return what is left of the memory that something may take; None where that is not known."""
    return None if available_bytes is None else max(0, available_bytes - taken_bytes)
