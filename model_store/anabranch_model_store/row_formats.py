"""How many bytes rows and indexes take: docs/formats.md, "Rows" and "Generations".

Sizes are known here before anything is written, so that what will not fit is refused at once.
"""

from dataclasses import dataclass
from typing import Final, Literal

from anabranch_runtime.store import index_bytes, row_stride
from anabranch_wire.document_fields import RowType
from anabranch_wire.plan import Capacity

__all__ = ["MAX_DIM", "TableSize"]

MAX_DIM: Final = 1024
_KEY: Final = 8
_LINK: Final = 8


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
        return rows if self.keys == "dense_id" else rows + self.rows * _KEY + index_bytes(self.rows)

    def generation_bytes(self, capacity: Capacity) -> int:
        """Return what it takes in a generation once all its room is used."""
        arena = capacity.arena_rows * (row_stride(self.row_type, self.dim) + _LINK)
        if self.keys == "dense_id":
            return arena + self.rows * _LINK + self.rows // 8
        return arena + index_bytes(capacity.keys)
