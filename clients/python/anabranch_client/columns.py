"""Features as callers have them, as columns: values, and how many of them each row has.

Neither pandas nor pyarrow is imported: their objects are known by what they can do.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from anabranch_client.frames import ArrowArray, is_arrow
from anabranch_wire.errors import InvalidInput

__all__ = ["ValueColumn", "flat_values", "read_column", "read_rows"]

_SCALARS: Final = frozenset({bool, int, float, str})
"""What a list of values mostly holds: it is not looked at value by value."""

Values = NDArray[np.int64] | NDArray[np.float32] | NDArray[np.float64] | list[str]


@dataclass(frozen=True, slots=True, eq=False)
class ValueColumn:
    """One feature of a user or of all candidates.

    Attributes:
        values: int64 or floats of one axis, of two where a row has several; or texts. Views of
            what the caller has where that is of such a type.
        lengths: uint32, values of each row, where rows differ in it; else None.
        weights: float32, one for each value; None where there are none.
        missing: true where a row has no value; None where all have.
    """

    values: Values
    lengths: NDArray[np.uint32] | None = None
    weights: NDArray[np.float32] | None = None
    missing: NDArray[np.bool_] | None = None

    @property
    def rows(self) -> int:
        """Rows of candidates; of a user's column it says nothing."""
        return len(self.values if self.lengths is None else self.lengths)


def read_column(value: object, what: str) -> ValueColumn | None:
    """Return what an array, a Series, an Arrow array or a tuple of arrays holds.

    Args:
        value: of one feature. A tuple is `(values, lengths)` or `(values, lengths, weights)`.
        what: how messages name it, as in `"feature 'price'"`.

    Returns:
        None for lists and everything else that has to be looked at value by value.

    Raises:
        InvalidInput: it is of another type inside, or contradicts itself.
    """
    if _is_ragged(value):
        return _ragged(value, what)
    if isinstance(value, np.ndarray):
        return None if value.dtype.kind == "O" else ValueColumn(_numbers(value, what))
    if is_arrow(value):
        return _arrow(value, what)
    return None


def read_rows(rows: Sequence[object], what: str, row_name: str) -> ValueColumn:
    """Return what a list holds, looked at row by row.

    Args:
        rows: values; lists of values; mappings with `ids` and `weights`; None for a missing row.
        what: how messages name the feature.
        row_name: how they name a row, as in `"candidate"`.

    Raises:
        InvalidInput: the first row that is none, by name.
    """
    if _SCALARS.issuperset(map(type, rows)):
        return ValueColumn(flat_values(rows, what, row_name))
    missing = np.fromiter((row is None for row in rows), np.bool_, len(rows))
    flags = missing if missing.any() else None
    some = next((row for row in rows if row is not None), None)
    if not (isinstance(some, Mapping) or _has_length(some)):
        stand_in = "" if isinstance(some, str | bytes) else 0
        given = rows if flags is None else [stand_in if row is None else row for row in rows]
        return ValueColumn(flat_values(given, what, row_name), missing=flags)
    values: list[object] = []
    weights: list[object] = []
    lengths = np.zeros(len(rows), np.uint32)
    weighted = isinstance(some, Mapping)
    for index, row in enumerate(rows):
        ids = row.get("ids") if isinstance(row, Mapping) else row
        given_weights = row.get("weights") if isinstance(row, Mapping) else None
        if row is None:
            continue
        if not _has_length(ids):
            raise InvalidInput(f"{what}, {row_name} {index}: expected a list, got {_shown(row)}")
        new = list(ids)
        values += new
        weights += [1.0] * len(new) if given_weights is None else list(given_weights)
        if len(weights) != len(values):
            raise InvalidInput(f"{what}, {row_name} {index}: expected as many weights as ids")
        lengths[index] = len(new)
    return ValueColumn(
        flat_values(values, what, "value"),
        lengths,
        _weights(weights, what) if weighted else None,
        flags,
    )


def flat_values(values: Sequence[object], what: str, row_name: str) -> Values:
    """Return values of one type: texts, integers, or numbers where some are no integers.

    Raises:
        InvalidInput: the first one of another type, by name.
    """
    kinds = set(map(type, values))
    if kinds <= {str}:
        return cast(list[str], list(values)) if values else np.zeros(0, np.int64)
    if all(issubclass(kind, int | np.integer | np.bool_) for kind in kinds):
        try:
            return np.array(values, np.int64)
        except OverflowError:
            raise InvalidInput(f"{what}: expected integers of 64 bits") from None
    if all(issubclass(kind, int | float | np.number | np.bool_) for kind in kinds):
        return np.array(values, np.float64)
    if kinds <= {bytes, str, np.str_, np.bytes_}:
        return _texts(values, what)
    number = any(isinstance(value, int | float | np.number) for value in values[:1])
    wanted = (int, float, np.number) if number else (str, bytes)
    for index, value in enumerate(values):
        if not isinstance(value, wanted):
            expected = "a number" if number else "text"
            raise InvalidInput(
                f"{what}, {row_name} {index}: expected {expected}, got {_shown(value)}"
            )
    raise InvalidInput(f"{what}: expected numbers or texts, got {_shown(values[0])}")


def _ragged(parts: tuple[Collection[object], ...], what: str) -> ValueColumn:
    flat = read_column(parts[0], what) if not isinstance(parts[0], tuple) else None
    values = flat.values if flat is not None else flat_values(list(parts[0]), what, "value")
    lengths = np.asarray(parts[1])
    if lengths.ndim != 1 or (lengths.dtype.kind not in "iu" and lengths.size):
        raise InvalidInput(f"{what}: expected lengths of one axis, integers")
    if (lengths.size and lengths.min() < 0) or int(lengths.sum()) != len(values):
        raise InvalidInput(
            f"{what}: expected lengths that add up to {len(values)} values, got {lengths.sum()}"
        )
    weights = _weights(parts[2], what) if len(parts) == 3 else None
    if weights is not None and len(weights) != len(values):
        raise InvalidInput(f"{what}: expected {len(values)} weights, got {len(weights)}")
    return ValueColumn(values, lengths.astype(np.uint32), weights)


def _numbers(array: NDArray[np.generic], what: str) -> Values:
    kind = array.dtype.kind
    if array.ndim > 2:
        raise InvalidInput(f"{what}: expected at most two axes, got {array.ndim}")
    if kind in "US" and array.ndim <= 1:
        return _texts(array.reshape(-1).tolist(), what)
    if kind == "f":
        wanted = np.float32 if array.dtype.itemsize <= 4 else np.float64
        return np.ascontiguousarray(array, wanted).reshape(array.shape)  # type: ignore[return-value]  # one of the two
    if kind not in "iub":
        raise InvalidInput(f"{what}: expected numbers or texts, got an array of {array.dtype}")
    if array.dtype.itemsize == 8 and kind == "u" and array.size and array.max() >= 1 << 63:
        raise InvalidInput(f"{what}: expected signed integers of 64 bits, got {array.max()}")
    return np.ascontiguousarray(array, np.int64).reshape(array.shape)


def _arrow(array: ArrowArray, what: str) -> ValueColumn:
    if hasattr(array, "combine_chunks"):
        array = array.combine_chunks()
    kind = str(array.type)
    if kind.startswith("dictionary<"):
        return _arrow(array.dictionary_decode(), what)
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if kind.startswith("fixed_size_list<"):
        if missing is not None:
            raise InvalidInput(f"{what}: a list of fixed size is missing")
        flat = _arrow(array.flatten(), what)
        if isinstance(flat.values, list) or flat.missing is not None:
            raise InvalidInput(f"{what}: expected numbers in lists of fixed size")
        return replace(flat, values=flat.values.reshape(len(array), -1))
    if kind.startswith(("list<", "large_list<")):
        flat = _arrow(array.flatten(), what)
        if flat.missing is not None:
            raise InvalidInput(f"{what}: a value inside a list is missing")
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        return ValueColumn(flat.values, lengths.astype(np.uint32), missing=missing)
    if kind in ("string", "large_string", "string_view", "binary", "large_binary"):
        texts = array.to_pylist()
        given = texts if missing is None else ["" if text is None else text for text in texts]
        return ValueColumn(_texts(given, what), missing=missing)
    if kind == "null":
        return ValueColumn(np.zeros(len(array), np.int64), missing=missing)
    filled = array if missing is None else array.fill_null(False if kind == "bool" else 0)
    return ValueColumn(_numbers(filled.to_numpy(zero_copy_only=False), what), missing=missing)


def _texts(values: Sequence[object], what: str) -> list[str]:
    try:
        return [v.decode() if isinstance(v, bytes) else str(v) for v in values]
    except UnicodeDecodeError:
        raise InvalidInput(f"{what}: expected text, got bytes that are not UTF-8") from None


def _weights(weights: object, what: str) -> NDArray[np.float32]:
    try:
        found = np.asarray(weights, np.float32)
    except (TypeError, ValueError):
        raise InvalidInput(f"{what}: expected numbers as weights") from None
    if found.ndim != 1:
        raise InvalidInput(f"{what}: expected weights of one axis")
    return found


def _is_ragged(value: object) -> TypeGuard[tuple[Collection[object], ...]]:
    return isinstance(value, tuple) and len(value) in (2, 3) and all(map(_has_length, value))


def _has_length(value: object) -> TypeGuard[Collection[object]]:
    """Whether something is an array or a list, and no text."""
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Mapping)


def _shown(value: object) -> str:
    """Show a value as the server would, which reads JSON."""
    return json.dumps(value, default=repr)[:80]
