"""The first difference between what a version made of a golden request and what its file has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.golden.keys import FeatureKeys

__all__ = ["GoldenDifference", "different_key", "different_score"]

_SHOWN: Final = 80

Array = NDArray[np.generic]
Number = int | float | str


@dataclass(frozen=True, slots=True)
class GoldenDifference:
    """Where a version and its trainer part.

    Attributes:
        file: of the golden request.
        kind: whether a key or a score differs.
        name: of the feature or of the output.
        row: candidate; None for the user.
        found: what the version has, in words.
        expected: what the file has, in words.
    """

    file: str
    kind: str
    name: str
    row: int | None
    found: str
    expected: str

    @property
    def text(self) -> str:
        """All of it, in words."""
        what = "feature" if self.kind == "key" else "output"
        row = "user" if self.row is None else f"candidate {self.row}"
        return (
            f"{self.file}: {what} {self.name!r}, {row}: found {self.found}, expected "
            f"{self.expected}"
        )


def different_key(
    file: str, name: str, side: str, found: FeatureKeys, expected: Sequence[object]
) -> GoldenDifference | None:
    """Return the first row whose keys are others; None where all are the same.

    Args:
        file: of the golden request.
        name: of the feature.
        side: of the feature.
        found: what the version made.
        expected: one entry a row.
    """
    if len(found.rows) != len(expected):
        where = None if side == "user" else min(len(found.rows), len(expected))
        rows = f"{len(found.rows)} row{'' if len(found.rows) == 1 else 's'} of keys"
        return GoldenDifference(file, "key", name, where, rows, str(len(expected)))
    for at, (row, wanted) in enumerate(zip(found.rows, expected, strict=True)):
        words = _difference(row, _as_values(wanted, found, row.shape[1]))
        if words is not None:
            where = None if side == "user" else at
            return GoldenDifference(file, "key", name, where, *words)
    return None


def different_score(
    file: str, name: str, found: Array, expected: Sequence[object], max_abs_diff: float
) -> GoldenDifference | None:
    """Return the first candidate whose score is further off than it may be.

    Args:
        file: of the golden request.
        name: of the output.
        found: of each candidate a number, or an array of them.
        expected: the same.
        max_abs_diff: how far off a number may be.
    """
    for at, (score, wanted) in enumerate(zip(found, expected, strict=True)):
        numbers = np.asarray(wanted, np.float64)
        shown = np.asarray(score, np.float64)
        if shown.shape != numbers.shape and shown.size == 1 == numbers.size:
            shown = shown.reshape(numbers.shape)  # one number as a list of one
        if shown.shape != numbers.shape:
            return GoldenDifference(file, "score", name, at, _size(shown), _size(numbers))
        off = np.abs(shown - numbers)
        if not (off <= max_abs_diff).all():  # what is no number is never within
            worst = np.unravel_index(np.argmax(~(off <= max_abs_diff)), off.shape)
            one, two = float(shown[worst]), float(numbers[worst])
            place = "" if not worst else f" at {[int(index) for index in worst]}"
            return GoldenDifference(
                file,
                "score",
                name,
                at,
                f"{one:.9g}{place}",
                f"{two:.9g} within {max_abs_diff:.3g} (it is {abs(one - two):.3g} off)",
            )
    return None


def _as_values(wanted: object, found: FeatureKeys, each: int) -> "list[list[object]] | str":
    """Return a row of the file as values with their keys; words where it has another form."""
    values = [wanted] if found.flat else wanted
    if not isinstance(values, list | tuple):
        return f"one key {_text(wanted)}, not a list"
    if each == 1:
        if any(isinstance(value, list | tuple) for value in values):
            return f"a list of keys for one value: {_text(wanted)}"
        return [[value] for value in values]
    for value in values:
        if not isinstance(value, list | tuple) or len(value) != each:
            return f"{_text(value)} for a value that has {each} keys"
    return [list(value) for value in values if isinstance(value, list | tuple)]


def _difference(row: Array, wanted: "list[list[object]] | str") -> tuple[str, str] | None:
    """Return what was found and what was expected, in words; None where it is the same."""
    if isinstance(wanted, str):
        return _keys(row), wanted
    if len(row) != len(wanted):
        values = [keys[0] for keys in wanted] if row.shape[1] == 1 else wanted
        return f"{len(row)} keys {_keys(row)}", f"{len(wanted)}: {_text(values)}"
    for at, (value, keys) in enumerate(zip(row, wanted, strict=True)):
        for which, (one, two) in enumerate(zip(value.tolist(), keys, strict=True)):
            if not _is_same(one, two, row.dtype):
                place = [f"value {at}"] if len(row) > 1 else []
                place += [f"table {which}"] if len(keys) > 1 else []
                where = f" ({', '.join(place)})" if place else ""
                return f"key {_text(one)}{where}", _text(two)
    return None


def _is_same(found: object, expected: object, dtype: "np.dtype[np.generic]") -> bool:
    if isinstance(found, bytes):
        return found.decode(errors="replace") == expected
    if isinstance(found, str) or isinstance(expected, str):
        return found == expected
    if not isinstance(expected, int | float) or not isinstance(found, int | float):
        return False
    if dtype.kind == "f":
        return bool(dtype.type(expected) == found)
    if isinstance(expected, int) and expected >= 2**63:
        expected -= 2**64  # as hashes are written by those who keep them unsigned
    return found == expected


def _keys(row: Array) -> str:
    return _text(row[:, 0].tolist() if row.shape[1] == 1 else row.tolist())


def _text(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = str(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _size(numbers: NDArray[np.float64]) -> str:
    return f"numbers of shape {list(numbers.shape)}"
