"""Hypothesis strategies of ranking plans and of what callers send for them, in every form."""

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    FeaturePlan,
    HashPlan,
    MultiHashPlan,
    RaggedPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
    ValueType,
    VocabularyPlan,
)
from anabranch_runtime.ranking.requests import ArrayColumn
from plain_features import Column, Row, Value

__all__ = ["DrawnRequest", "array_column", "json_column", "message_column", "plans", "requests"]

_FUNCTIONS: Sequence[Literal["xxh64", "murmur3_x64_128_low", "farmhash_fingerprint64"]] = (
    "xxh64",
    "murmur3_x64_128_low",
    "farmhash_fingerprint64",
)
_WORDS = ("red", "green", "", "größe", "日本", "x" * 40)
_INTS = (0, 1, -1, 7, 2**11, 2**11 + 1, 2**24 + 1, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -0.5, 0.7, 18.0, 65504.0, 65520.0, 1e30, math.nan, math.inf, -math.inf)


@dataclass(frozen=True)
class DrawnRequest:
    """Rows of each feature, None where it was left out; and how many candidates there are."""

    rows: int
    columns: tuple[Column | None, ...]


@st.composite
def plans(draw: st.DrawFn) -> RankingPlan:
    """Plans of a few features: in tensors of their own, in one that is packed, and for lookups."""
    count = draw(st.integers(1, 6))
    features: list[FeaturePlan] = []
    tensors: list[TensorFill] = []
    packed: list[tuple[int, int]] = []  # feature, key; -1 for its lengths
    packed_type = draw(st.sampled_from(["INT32", "INT64", "FP16", "FP32", "FP64"]))
    for index in range(count):
        feature = draw(_features(f"f{index}"))
        is_text = feature.type == "string" and feature.transform is None
        is_number = feature.type == "float32" and feature.transform is None
        keys_each = _keys_each(feature)
        where = draw(st.sampled_from(["own", "packed", "keys", "nowhere"]))
        if feature.weighted:
            where = "keys"
        if where == "keys" and (is_text or is_number):
            where = "own"
        if where == "packed" and (is_text or (is_number and packed_type.startswith("INT"))):
            where = "own"
        if where in ("own", "packed") and feature.ragged and feature.ragged.pad_to is None:
            where = "nowhere" if is_text or is_number else "keys"
        width = _width(feature)
        lengths = draw(st.booleans()) if feature.ragged and where != "nowhere" else False
        if where == "keys":
            names = [feature.name] if keys_each == 1 else _tables(feature.name, keys_each)
            feature = _with(feature, keys=tuple(names))
        elif where == "packed":
            packed += [(index, key) for key in range(keys_each)]
        elif where == "own":
            types = ["BYTES"] if is_text else ["FP16", "FP32", "FP64"]
            if not is_text and not is_number:
                types += ["INT32", "INT64"]
            sinks = []
            for key in range(keys_each):
                sinks.append(SinkPlan(len(tensors), 0))
                shape = draw(st.sampled_from([(width,), (1, width)] + [()] * (width == 1)))
                name = f"{feature.name}:{key}"
                tensors.append(TensorFill(name, draw(st.sampled_from(types)), shape, False))
            feature = _with(feature, values=tuple(sinks))
        if lengths and draw(st.booleans()):
            packed.append((index, -1))
        elif lengths:
            feature = _with(feature, lengths=SinkPlan(len(tensors), 0))
            tensors.append(TensorFill(f"{feature.name}:n", "INT64", (), False))
        features.append(feature)
    _pack(features, tensors, draw(st.permutations(packed)), packed_type)
    return RankingPlan(
        features=tuple(features),
        tensors=tuple(tensors),
        id="f0",
        heads=("score",),
        weights=(1.0,),
        formula="head",
    )


def _pack(
    features: list[FeaturePlan],
    tensors: list[TensorFill],
    packed: Sequence[tuple[int, int]],
    datatype: str,
) -> None:
    """Give features their columns of one tensor, in this order."""
    if not packed:
        return
    column = 0
    sinks: dict[tuple[int, int], SinkPlan] = {}
    for index, key in packed:
        feature = features[index]
        sinks[index, key] = SinkPlan(len(tensors), column)
        column += 1 if key < 0 else _width(feature)
    for index, feature in enumerate(features):
        values = [sinks[index, key] for key in range(_keys_each(feature)) if (index, key) in sinks]
        if values:
            features[index] = _with(features[index], values=tuple(values))
        if (index, -1) in sinks:
            features[index] = _with(features[index], lengths=sinks[index, -1])
    tensors.append(TensorFill("X", datatype, (column,), False))


def _with(feature: FeaturePlan, **changes: Any) -> FeaturePlan:
    fields = {name: getattr(feature, name) for name in feature.__struct_fields__}
    return FeaturePlan(**(fields | changes))


def _tables(name: str, count: int) -> list[str]:
    return [f"{name}.t{key}" for key in range(count)]


def _width(feature: FeaturePlan) -> int:
    """Columns that its values fill; 1 where it fills none."""
    if feature.ragged is not None:
        return feature.ragged.pad_to or 1
    return math.prod(feature.shape)


def _keys_each(feature: FeaturePlan) -> int:
    if isinstance(feature.transform, MultiHashPlan):
        return len(feature.transform.functions) or 2
    return 1


@st.composite
def _features(draw: st.DrawFn, name: str) -> FeaturePlan:
    kind: ValueType = draw(st.sampled_from(["int64", "float32", "string"]))
    transform = draw(_transforms(kind))
    ragged = None
    shape: tuple[int, ...] = ()
    makes_ids = kind == "int64" or transform is not None
    weighted = False
    if draw(st.booleans()):
        most = draw(st.integers(1, 4))
        pad_to = draw(st.sampled_from([None, most, most + 2]))
        ragged = RaggedPlan(
            most,
            draw(st.sampled_from(["first", "last", "error"])),
            pad_to,
            float(draw(st.sampled_from([0, -1, 5]))),
        )
        weighted = pad_to is None and makes_ids and draw(st.booleans())
    elif kind == "float32":
        shape = draw(st.sampled_from([(), (3,), (2, 2)]))
    default = None
    if draw(st.booleans()):
        count = draw(st.integers(0, ragged.max_length)) if ragged else math.prod(shape)
        default = tuple(draw(st.lists(_safe(kind, transform), min_size=count, max_size=count)))
    return FeaturePlan(
        name=name,
        side=draw(st.sampled_from(["user", "candidate", "candidate"])),
        type=kind,
        shape=shape,
        transform=transform,
        default=default,
        ragged=ragged,
        weighted=weighted,
    )


def _transforms(kind: str) -> st.SearchStrategy[Any]:
    """Transforms whose ids every tensor holds, now and then."""
    buckets = st.sampled_from([1, 7, 1000, 2**16, 2**32])
    hashes = st.one_of(
        st.builds(
            HashPlan, st.sampled_from(_FUNCTIONS[:2]), buckets, st.sampled_from([0, 9, 2**40])
        ),
        st.builds(HashPlan, st.just(_FUNCTIONS[2]), buckets),
        st.builds(HashPlan, st.sampled_from(_FUNCTIONS), st.just(0)),
        st.builds(
            MultiHashPlan,
            buckets,
            st.lists(st.sampled_from(_FUNCTIONS), min_size=1, max_size=3).map(tuple),
            st.sampled_from([0, 3]),
        ),
    )
    unknown = st.sampled_from([None, 0, -1, 2**30])
    boundaries = st.sampled_from([(0.0,), (-0.5, 0.7, 18.0), (-1e19, -2.5, 0.3, 1e19), (1.0, 7.0)])
    if kind == "float32":
        return st.one_of(st.none(), st.builds(BucketizePlan, boundaries))
    known: Sequence[Value] = _WORDS[:3] if kind == "string" else _INTS[:4]
    vocabulary = st.builds(
        VocabularyPlan, st.just(tuple(known)), st.none(), st.sampled_from([0, 1, 100]), unknown
    )
    if kind == "string":
        return st.one_of(st.none(), hashes, vocabulary)
    division = st.builds(MultiHashPlan, st.sampled_from([1, 3, 1000]), st.just(()), st.just(0))
    return st.one_of(st.none(), hashes, vocabulary, division, st.builds(BucketizePlan, boundaries))


def _safe(kind: str, transform: object) -> st.SearchStrategy[Value]:
    """Values that no transform or tensor refuses, for defaults."""
    if kind == "string":
        return st.sampled_from(_WORDS[:3])
    if kind == "float32":
        return st.sampled_from([0.0, 0.7, -0.5])
    return st.sampled_from(_INTS[:4])


def _values(kind: str) -> st.SearchStrategy[Value]:
    if kind == "string":
        return st.one_of(
            st.sampled_from(_WORDS), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
        )
    if kind == "float32":
        return st.one_of(st.sampled_from(_FLOATS), st.floats(width=32)).map(
            lambda value: float(np.float32(value))
        )
    return st.one_of(st.sampled_from(_INTS), st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1))


@st.composite
def requests(draw: st.DrawFn, plan: RankingPlan, *, nulls: bool = True) -> DrawnRequest:
    """What callers may send for a plan: values of the right type, now and then at fault.

    Args:
        draw: of hypothesis.
        plan: whose features.
        nulls: whether rows may be null.
    """
    rows = draw(st.integers(0, 5))
    columns: list[Column | None] = []
    for feature in plan.features:
        if draw(st.integers(0, 7)) == 0:
            columns.append(None)
            continue
        count = 1 if feature.side == "user" else rows
        if feature.side == "candidate" and draw(st.integers(0, 15)) == 0:
            count += 1
        columns.append([draw(_rows(feature, nulls=nulls)) for _ in range(count)])
    return DrawnRequest(rows, tuple(columns))


@st.composite
def _rows(draw: st.DrawFn, feature: FeaturePlan, *, nulls: bool) -> Row | None:
    if nulls and draw(st.integers(0, 5)) == 0:
        return None
    low = high = math.prod(feature.shape)
    if feature.ragged is not None:
        low, high = 0, feature.ragged.max_length + 2
    values = draw(st.lists(_values(feature.type), min_size=low, max_size=high))
    if not feature.weighted or draw(st.booleans()):
        return Row(tuple(values))
    weights = st.floats(width=32, allow_nan=False, allow_infinity=False)
    drawn = draw(st.lists(weights, min_size=len(values), max_size=len(values)))
    return Row(tuple(values), tuple(drawn))


def json_column(feature: FeaturePlan, column: Column) -> bytes:
    """Return a column as JSON text."""
    rows = [_json_row(feature, row) for row in column]
    return json.dumps(rows[0] if feature.side == "user" else rows, ensure_ascii=False).encode()


def _json_row(feature: FeaturePlan, row: Row | None) -> object:
    if row is None:
        return None
    if row.weights is not None:
        return {"ids": list(row.values), "weights": list(row.weights)}
    is_list = feature.ragged is not None or math.prod(feature.shape) != 1
    return list(row.values) if is_list else row.values[0]


def message_column(feature: FeaturePlan, column: Column) -> bytes:
    """Return a column without nulls as a serialised `anabranch.v1.Column`."""
    rows = [row for row in column if row is not None]
    values = [value for row in rows for value in row.values]
    data = b""
    if feature.type == "string":
        data += b"".join(_field(5, str(value).encode()) for value in values)
    elif feature.type == "float32":
        data += _field(4, struct.pack(f"<{len(values)}f", *_floats(values)))
    else:
        data += _field(3, b"".join(_varint(int(value) % 2**64) for value in values))
    if feature.ragged is not None:
        data += _field(6, struct.pack(f"<{len(rows)}I", *[len(row.values) for row in rows]))
    if any(row.weights is not None for row in rows):
        data += _field(7, struct.pack(f"<{len(values)}f", *_weights(rows)))
    return data


def array_column(feature: FeaturePlan, column: Column) -> ArrayColumn:
    """Return a column as arrays."""
    filler: Value = "" if feature.type == "string" else 0
    empty = [] if feature.ragged else [filler] * math.prod(feature.shape)
    rows = [Row(tuple(empty)) if row is None else row for row in column]
    values = [value for row in rows for value in row.values]
    offsets = None
    if feature.type == "string":
        parts = [str(value).encode() for value in values]
        offsets = np.cumsum([0, *map(len, parts)]).astype(np.int64)
        array: Any = np.frombuffer(b"".join(parts), np.uint8)
    elif feature.type == "float32":
        array = np.array(_floats(values), np.float32)
    else:
        array = np.array(values, np.int64)
    lengths = np.array([len(row.values) for row in rows], np.uint32) if feature.ragged else None
    weighted = any(row.weights is not None for row in rows)
    missing = np.array([row is None for row in column], np.uint8)
    return ArrayColumn(
        array,
        offsets,
        lengths,
        np.array(_weights(rows), np.float32) if weighted else None,
        missing if missing.any() else None,
    )


def _floats(values: Sequence[Value]) -> list[float]:
    return [float(value) for value in values]


def _weights(rows: Sequence[Row]) -> list[float]:
    """A weight for each value: 1 where a row has none."""
    return [each for row in rows for each in row.weights or [1.0] * len(row.values)]


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
