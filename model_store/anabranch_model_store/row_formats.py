"""How many bytes rows and indexes take: docs/formats.md, "Rows" and "Generations".

Sizes are known here before anything is written, so that what will not fit is refused at once.
"""

from typing import Final

from anabranch_wire.document_fields import RowType
from anabranch_wire.plan import Capacity, PlanTable

__all__ = ["MAX_DIM", "generation_bytes", "row_stride", "segment_bytes"]

MAX_DIM: Final = 1024
_LINE: Final = 64
_ELEMENT: Final[dict[RowType, int]] = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}
_INT8_HEADER: Final = 4
_KEY: Final = 8
_LINK: Final = 8


def row_stride(row_type: RowType, dim: int) -> int:
    """Return the bytes from one row to the next, such that none touches more lines than it must."""
    size = dim * _ELEMENT[row_type] + (_INT8_HEADER if row_type == "int8" else 0)
    grain = 1 << ((size - 1) % _LINE).bit_length()
    return -(-size // grain) * grain


def segment_bytes(table: PlanTable) -> int:
    """Return what a table takes in a segment: rows and, where it is hashed, keys and index."""
    rows = table.rows * row_stride(table.dtype, table.dim)
    return rows if table.keys == "dense_id" else rows + table.rows * _KEY + _index(table.rows)


def generation_bytes(table: PlanTable, capacity: Capacity) -> int:
    """Return what a table takes in a generation once all its room is used."""
    arena = capacity.arena_rows * (row_stride(table.dtype, table.dim) + _LINK)
    if table.keys == "dense_id":
        return arena + table.rows * _LINK + table.rows // 8
    return arena + _index(capacity.keys)


def _index(keys: int) -> int:
    """Bytes of an index at a load of 0.6: four keys in a line, and a line for two odd keys."""
    return (keys * 5 // 12 + 2) * _LINE
