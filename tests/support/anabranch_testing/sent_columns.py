"""A plain reading of feature columns, one value after the other, to compare the native one with.

JSON goes through the `json` module, messages through google.protobuf; what a column means is
written down here once more.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from anabranch_runtime.ranking.plans import FeaturePlan
from anabranch_wire.ranking import Column

__all__ = ["ReadRow", "read_json", "read_message"]

Value: TypeAlias = int | float | bytes


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A row: its values and their weights, or that it is missing, or at fault."""

    values: tuple[Value, ...] = ()
    weights: tuple[float, ...] | None = None
    is_missing: bool = False
    is_fault: bool = False


_MISSING: Final = ReadRow(is_missing=True)
_FAULT: Final = ReadRow(is_fault=True)
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_INFINITE: Final = Fraction(2**128 - 2**103)
"""Half way from the largest float32 to what would be the next."""

_SIDE: Final = {"int64": "int64s", "float32": "floats", "string": "strings"}
_TYPE: Final = {"int64": 1, "float32": 2, "string": 3}


class _Whole(str):
    """A number without fraction and exponent, as it was written."""


class _Number(str):
    """Any other number, or NaN or an infinity."""


class _Members(list[tuple[str, object]]):
    """An object, with all its members."""


def read_json(text: bytes, feature: FeaturePlan) -> list[ReadRow] | None:
    """Return the rows of a column in JSON; None where it is at fault as a whole."""
    try:
        value: object = json.loads(
            text.decode(),
            parse_int=_Whole,
            parse_float=_Number,
            parse_constant=_Number,
            object_pairs_hook=_Members,
        )
    except (ValueError, RecursionError):
        return None
    if _has_surrogates(value):
        return None
    if feature.side == "user":
        return [_json_row(value, feature)]
    if not isinstance(value, list) or isinstance(value, _Members):
        return None
    return [_json_row(row, feature) for row in value]


def _json_row(row: object, feature: FeaturePlan) -> ReadRow:
    if row is None:
        return _MISSING
    weights: tuple[Value, ...] | None = None
    if feature.ragged is None and not feature.shape:
        values = _json_values([row], feature.type)
    elif feature.ragged is None:
        values = _json_values(row, feature.type)
        if values is not None and len(values) != math.prod(feature.shape):
            return _FAULT
    elif isinstance(row, _Members):
        members = dict(row)
        if not members.keys() <= ({"ids", "weights"} if feature.weighted else {"ids"}):
            return _FAULT
        values = _json_values(members.get("ids"), feature.type)
        if "weights" in members:
            weights = _json_values(members["weights"], "float32")
            if weights is None or values is None or len(weights) != len(values):
                return _FAULT
    else:
        values = _json_values(row, feature.type)
    if values is None:
        return _FAULT
    return ReadRow(values, None if weights is None else tuple(map(float, weights)))


def _json_values(row: object, of: str) -> tuple[Value, ...] | None:
    if not isinstance(row, list) or isinstance(row, _Members):
        return None
    values = [_json_value(value, of) for value in row]
    return (
        None
        if any(value is None for value in values)
        else tuple(v for v in values if v is not None)
    )


def _json_value(value: object, of: str) -> Value | None:
    if of == "string":
        is_text = isinstance(value, str) and not isinstance(value, _Whole | _Number)
        return value.encode() if is_text and isinstance(value, str) else None
    if of == "float32":
        return _float32(value) if isinstance(value, _Whole | _Number) else None
    if not isinstance(value, str) or isinstance(value, _Number):
        return None
    if _DECIMAL.fullmatch(value) is None or len(value) > 20:
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None


def _float32(text: str) -> float | None:
    """The nearest float32, ties to even; None where that is beyond the largest."""
    rough = float(text)
    if not math.isfinite(rough):
        return rough if text.lstrip("-")[0] in "NI" else None
    if abs(rough) < 1e-60 or abs(rough) > 1e60:
        return None if abs(rough) > 1 else math.copysign(0.0, rough)
    exact = Fraction(text)
    if abs(exact) >= _INFINITE:
        return None
    near = np.float32(min(abs(rough), float(np.finfo(np.float32).max)))
    with np.errstate(over="ignore"):
        around = (near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf)))

    def distance(one: np.float32) -> tuple[Fraction, int]:
        return abs(Fraction(float(one)) - abs(exact)), int(one.view(np.uint32)) % 2

    best = min((one for one in around if np.isfinite(one)), key=distance)
    return math.copysign(float(best), rough)


def _has_surrogates(value: object) -> bool:
    if isinstance(value, _Members):
        return any(_has_surrogates(name) or _has_surrogates(member) for name, member in value)
    if isinstance(value, list):
        return any(_has_surrogates(one) for one in value)
    return isinstance(value, str) and _SURROGATE.search(value) is not None


def read_message(data: bytes, feature: FeaturePlan) -> list[ReadRow] | None:
    """Return the rows of a serialised Column; None where it is at fault as a whole."""
    try:
        column = Column.FromString(data)
    except DecodeError:
        return None
    values = _message_values(column, feature)
    if values is None:
        return None
    lengths = _row_lengths(column, feature, len(values))
    weights = _numbers(column.weights, "<f4")
    if lengths is None or weights is None:
        return None
    if column.weights and (not feature.weighted or len(weights) != len(values)):
        return None
    rows, at = [], 0
    for length in lengths:
        row = values[at : at + length]
        if feature.type == "string" and not all(_is_text(value) for value in row):
            rows.append(_FAULT)
        else:
            beside = tuple(weights[at : at + length]) if column.weights else None
            rows.append(ReadRow(tuple(row), beside))
        at += length
    return rows


def _message_values(column: Column, feature: FeaturePlan) -> list[Value] | None:
    sent = [name for name in ("raw", *_SIDE.values()) if len(getattr(column, name))]
    types = [feature.type, *(["int64"] if feature.type == "float32" else [])]
    if len(sent) > 1 or (sent and sent[0] not in ("raw", *[_SIDE[one] for one in types])):
        return None
    if not sent:
        return [] if column.type in (0, *[_TYPE[one] for one in types]) else None
    if sent == ["raw"]:
        of = {_TYPE[one]: one for one in types if one != "string"}.get(column.type)
        if of is None:
            return None
        read = _numbers(column.raw, "<i8" if of == "int64" else "<f4")
        if read is None:
            return None
        values: list[Value] = list(read)
    else:
        of = next(one for one in types if _SIDE[one] == sent[0])
        if column.type not in (0, _TYPE[of]):
            return None
        values = list(getattr(column, sent[0]))
    if of == feature.type:
        return values
    return [float(np.float32(value)) for value in values]


def _row_lengths(column: Column, feature: FeaturePlan, values: int) -> Sequence[int] | None:
    is_user = feature.side == "user"
    if feature.ragged is None:
        width = math.prod(feature.shape)
        fits = values == width if is_user else values % width == 0
        return None if column.lengths or not fits else [width] * (values // width)
    if is_user and not column.lengths:
        return [values]
    lengths = _numbers(column.lengths, "<u4")
    if lengths is None or sum(lengths) != values or (is_user and len(lengths) != 1):
        return None
    return [int(length) for length in lengths]


def _numbers(data: bytes, of: str) -> list[float] | None:
    if len(data) % np.dtype(of).itemsize:
        return None
    numbers: list[float] = np.frombuffer(data, of).tolist()
    return numbers


def _is_text(value: Value) -> bool:
    assert isinstance(value, bytes)
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
