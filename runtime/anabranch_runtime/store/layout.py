"""Sizes of rows and indexes, as the native code lays them out: docs/formats.md, "Rows"."""

from anabranch_runtime import _native
from anabranch_runtime.store.rows import RowType

__all__ = ["index_bytes", "row_stride"]


def row_stride(row_type: RowType, dim: int) -> int:
    """Return the bytes from one row to the next, such that none touches more lines than it must."""
    return _native.row_stride(row_type, dim)


def index_bytes(keys: int) -> int:
    """Return the bytes of a fresh index for so many keys."""
    return _native.index_bytes(keys)
