"""How many bytes rows and indexes take: docs/formats.md, "Rows" and "Generations".

Sizes are known here before anything is written, so that what will not fit is refused at once.
"""

from dataclasses import dataclass
from typing import Final, Literal

from anabranch_wire.document_fields import RowType
from anabranch_wire.plan import Capacity

__all__ = ["MAX_DIM", "TableSize", "row_stride"]

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


@dataclass(frozen=True, slots=True)
class TableSize:
    """What the bytes of a table depend on.

    Attributes:
        rows: distinct keys.
        dim: numbers per row.
        row_type: of the numbers.
        keys: kind of keys.
    """

    rows: int
    dim: int
    row_type: RowType
    keys: Literal["hashed", "dense_id"]

    def segment_bytes(self) -> int:
        """Return what it takes in a segment: rows and, where it is hashed, keys and index."""
        rows = self.rows * row_stride(self.row_type, self.dim)
        return rows if self.keys == "dense_id" else rows + self.rows * _KEY + _index(self.rows)

    def generation_bytes(self, capacity: Capacity) -> int:
        """Return what it takes in a generation once all its room is used."""
        arena = capacity.arena_rows * (row_stride(self.row_type, self.dim) + _LINK)
        if self.keys == "dense_id":
            return arena + self.rows * _LINK + self.rows // 8
        return arena + _index(capacity.keys)


def _index(keys: int) -> int:
    """Bytes of an index at a load of 0.6: four keys in a line, and a line for two odd keys."""
    return (keys * 5 // 12 + 2) * _LINE
