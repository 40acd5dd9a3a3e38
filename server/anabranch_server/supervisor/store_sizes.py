"""How many bytes tables take in memory; the layout is in docs/formats.md."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from anabranch_model_store.row_formats import row_stride
from anabranch_wire.errors import TooLarge

if TYPE_CHECKING:
    from anabranch_runtime.store import Capacity, SegmentTable, TableStats

__all__ = ["arena_bytes", "base_bytes", "check_room", "generation_bytes", "index_bytes"]

_SLOT: Final = 16
_LINK: Final = 8
_ROW_VERSION: Final = 8
_LOAD: Final = 0.6
"""Keys per slot of an index that has as many keys as it has room for."""


def base_bytes(table: "SegmentTable") -> int:
    """Return the bytes of a table's rows as published."""
    return table.rows * row_stride(table.row_type, table.dim)


def arena_bytes(table: "SegmentTable", stats: "TableStats") -> int:
    """Return the bytes of a table's changed rows."""
    return stats.arena_used * row_stride(table.row_type, table.dim)


def index_bytes(table: "SegmentTable", stats: "TableStats") -> int:
    """Return the bytes in which the rows of a table are found."""
    return table.rows * _ROW_VERSION if table.keys == "dense_id" else stats.slots * _SLOT


def generation_bytes(tables: "Sequence[SegmentTable]", capacities: "Sequence[Capacity]") -> int:
    """Return the memory of a full generation: indexes, changed rows and undo links."""
    total = 0
    for table, capacity in zip(tables, capacities, strict=True):
        total += capacity.arena_rows * (row_stride(table.row_type, table.dim) + _LINK)
        if table.keys == "dense_id":
            total += table.rows * _ROW_VERSION
        else:
            total += int(capacity.keys * _SLOT / _LOAD)
    return total


def check_room(
    tables: "Sequence[SegmentTable]",
    capacities: "Sequence[Capacity]",
    available_bytes: int | None,
) -> None:
    """Check that there is memory for a generation.

    Raises:
        TooLarge: there is not; the message has the numbers.
    """
    needed = generation_bytes(tables, capacities)
    if available_bytes is not None and needed > available_bytes:
        raise TooLarge(
            f"index and room for changed rows of the tables need {needed} bytes; the machine has "
            f"{available_bytes} left"
        )
