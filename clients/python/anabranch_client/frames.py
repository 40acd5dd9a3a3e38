"""Tables and series of other libraries, known by what they can do; none of them is imported."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.errors import InvalidInput

__all__ = ["ArrowArray", "columns_of", "is_arrow", "plain"]


class ArrowArray(Protocol):
    """What is used of a pyarrow Array or ChunkedArray."""

    type: object
    null_count: int

    def __len__(self) -> int: ...

    def combine_chunks(self) -> "ArrowArray":
        """Return all chunks as one."""
        ...

    def dictionary_decode(self) -> "ArrowArray":
        """Return the values that indexes stand for."""
        ...

    def flatten(self) -> "ArrowArray":
        """Return the values of all lists that are not null."""
        ...

    def value_lengths(self) -> "ArrowArray":
        """Return how long each list is."""
        ...

    def is_null(self) -> "ArrowArray":
        """Return which values are null."""
        ...

    def fill_null(self, value: int) -> "ArrowArray":
        """Return the array with `value` for each null."""
        ...

    def to_pylist(self) -> list[object]:
        """Return Python objects."""
        ...

    def to_numpy(self, *, zero_copy_only: bool) -> NDArray[Any]:
        """Return a NumPy array, a view where that is possible."""
        ...


def is_arrow(value: object) -> TypeGuard[ArrowArray]:
    """Return whether something is a pyarrow Array or ChunkedArray."""
    return hasattr(value, "null_count") and hasattr(value, "to_pylist") and hasattr(value, "type")


def columns_of(given: object, what: str) -> Mapping[str, object]:
    """Return the columns of a mapping, a DataFrame, or an Arrow table or record batch.

    Args:
        given: name -> column.
        what: how messages name it.

    Raises:
        InvalidInput: it is none of these, or a name is no text.
    """
    table: Any = given  # what it can do says what it is
    names: Iterable[object]
    if isinstance(table, Mapping):
        found: Mapping[object, object] = table
    elif hasattr(table, "column_names") and hasattr(table, "column"):
        names = table.column_names
        found = {name: table.column(name) for name in names}
    elif hasattr(table, "columns") and hasattr(table, "__getitem__"):
        names = table.columns
        found = {name: table[name] for name in names}
    else:
        raise InvalidInput(
            f"{what}: expected a mapping of names to columns or a table, got {type(table).__name__}"
        )
    columns: dict[str, object] = {}
    for key, column in found.items():
        if not isinstance(key, str):
            raise InvalidInput(f"{what}: expected names, got {repr(key)[:80]}")
        columns[key] = column
    return columns


def plain(given: object) -> object:
    """Return a Series of pandas or polars as an array or a list; anything else as it is.

    What pandas counts as missing is None, except in columns of NumPy floats, where a NaN is a
    number like any other.
    """
    value: Any = given
    if isinstance(value, np.ndarray) or is_arrow(value) or not hasattr(value, "to_numpy"):
        return value
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return value.to_numpy()
    if hasattr(value, "isna") and hasattr(value, "tolist"):
        flags = value.isna().tolist()
        values = value.tolist()
        return [None if gone else item for item, gone in zip(values, flags, strict=True)]
    return value.to_list() if hasattr(value, "to_list") else value
