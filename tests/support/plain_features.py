"""Features of ranking requests in plain Python: what the native program must come to.

A slow reading of the contract, value by value, from `RankingPlan` and rows as Python values. Hashes
are those of the reference packages.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import farmhash
import mmh3
import numpy as np
import xxhash
from numpy.typing import NDArray

from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    FeaturePlan,
    HashPlan,
    MultiHashPlan,
    RankingPlan,
    SinkPlan,
    VocabularyPlan,
)

__all__ = [
    "Column",
    "PlainFault",
    "PlainOutputs",
    "Row",
    "Value",
    "arrays_differ",
    "plain_hash",
    "plain_outputs",
]

Value = int | float | str


@dataclass(frozen=True)
class Row:
    """What was sent for one row.

    Attributes:
        values: of the row, one where it is no list.
        weights: one for each value, or None.
    """

    values: tuple[Value, ...]
    weights: tuple[float, ...] | None = None


Column = Sequence[Row | None]
"""Rows of a feature; None where null was sent."""


@dataclass
class PlainOutputs:
    """As `FeatureOutputs`, with plain values: faults are (feature, row, text)."""

    rows: int
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    counts: list[list[int]] = field(default_factory=list)
    faults: list[tuple[int, int | None, str]] = field(default_factory=list)


class PlainFault(Exception):
    """A row is at fault; as it leaves `plain_outputs`, a default is."""


@dataclass
class _Made:
    """One row made: for each key of a value the ids, numbers or strings; and weights."""

    lists: list[list[Value]]
    weights: list[float]
    values: int = 0
    out_of_vocabulary: int = 0
    truncated: int = 0
    out_of_range: int = 0


_HOLDS = {
    "INT32": (-(2**31), 2**31 - 1),
    "INT64": (-(2**63), 2**63 - 1),
    "FP16": (-(2**11), 2**11),
    "FP32": (-(2**24), 2**24),
    "FP64": (-(2**53), 2**53),
}
_TYPES = {
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}


def plain_hash(function: str, seed: int, num_buckets: int, value: str | int) -> int:
    """The key of a value, by the reference packages."""
    data = str(value).encode()
    if function == "xxh64":
        hashed = xxhash.xxh64_intdigest(data, seed)
    elif function == "murmur3_x64_128_low":
        hashed = mmh3.hash64(data, seed % 2**32, x64arch=True, signed=False)[0]
    else:
        hashed = farmhash.fingerprint64(str(value))
    if num_buckets:
        return hashed % num_buckets
    return hashed - 2**64 if hashed >= 2**63 else hashed


def plain_outputs(plan: RankingPlan, columns: Sequence[Column | None], rows: int) -> PlainOutputs:
    """Run all features over rows; `rows` counts candidates where none of their columns was sent."""
    base = next(
        (
            index
            for index, (feature, column) in enumerate(zip(plan.features, columns, strict=True))
            if feature.side == "candidate" and column is not None
        ),
        None,
    )
    count = rows if base is None else len(columns[base] or ())
    outputs = PlainOutputs(count)
    made: list[list[_Made]] = []
    for index, (feature, column) in enumerate(zip(plan.features, columns, strict=True)):
        expected = 1 if feature.side == "user" else count
        sent: Column = [None] * expected if column is None else column
        whole = None
        if column is None and feature.default is None:
            whole = "expected a value, got nothing"
        elif len(sent) != expected:
            whole = f"expected {expected} rows, as feature {plan.features[base or 0].name!r} has"
            whole = "expected one row" if feature.side == "user" else whole
            whole += f", got {len(sent)}"
        if whole is not None:
            outputs.faults.append((index, None, whole))
            sent = [None] * expected
        made.append(_feature(plan, index, sent, outputs, at_fault=whole is not None))
    _fill_tensors(plan, made, outputs)
    for feature, found in zip(plan.features, made, strict=True):
        _flatten(feature, found, outputs)
    return outputs


def _feature(
    plan: RankingPlan, index: int, sent: Column, outputs: PlainOutputs, *, at_fault: bool
) -> list[_Made]:
    feature = plan.features[index]
    counts = [0, 0, 0, 0, 0]
    made: list[_Made] = []
    default = None
    if feature.default is not None:
        default = _row(plan, feature, Row(feature.default))
    for place, row in enumerate(sent):
        counted = None
        if at_fault:
            made.append(default or _zeros(feature))
        elif row is None and default is not None:
            made.append(default)
            counts[1] += 1
            counted = default
        else:
            try:
                if row is None:
                    raise PlainFault("expected a value, got null")
                counted = _row(plan, feature, row)
                made.append(counted)
            except PlainFault as fault:
                outputs.faults.append((index, place, str(fault)))
                made.append(default or _zeros(feature))
        if counted is not None:
            counts[0] += counted.values
            counts[2] += counted.out_of_vocabulary
            counts[3] += counted.truncated
            counts[4] += counted.out_of_range
    outputs.counts.append(counts)
    return made


def _keys_each(feature: FeaturePlan) -> int:
    if isinstance(feature.transform, MultiHashPlan):
        return len(feature.transform.functions) or 2
    return 1


def _zeros(feature: FeaturePlan) -> _Made:
    count = 0 if feature.ragged else math.prod(feature.shape)
    as_is = feature.transform is None
    zero: Value = "" if as_is and feature.type == "string" else 0
    return _Made([[zero] * count for _ in range(_keys_each(feature))], [1.0] * count)


def _row(plan: RankingPlan, feature: FeaturePlan, row: Row) -> _Made:
    values = list(row.values)
    weights = list(row.weights) if row.weights is not None else [1.0] * len(values)
    truncated = 0
    if feature.ragged is not None and len(values) > feature.ragged.max_length:
        most = feature.ragged.max_length
        if feature.ragged.keep == "error":
            raise PlainFault(f"expected at most {most} values, got {len(values)}")
        truncated = len(values) - most
        kept = slice(0, most) if feature.ragged.keep == "first" else slice(truncated, None)
        values, weights = values[kept], weights[kept]
    if feature.type == "float32":
        values = [float(np.float32(value)) for value in values]
    made = _Made([[] for _ in range(_keys_each(feature))], weights, len(values), 0, truncated)
    for value in values:
        for into, key in zip(made.lists, _transform(feature, value, made), strict=True):
            into.append(key)
        if isinstance(value, float) and not math.isfinite(value):
            made.out_of_range += 1
    for sink, keys in zip(feature.values, made.lists, strict=False):
        _check_range(plan.tensors[sink.tensor].datatype, keys)
    return made


def _transform(feature: FeaturePlan, value: Value, made: _Made) -> tuple[Value, ...]:
    match feature.transform:
        case None:
            return (value,)
        case HashPlan(function, num_buckets, seed):
            assert not isinstance(value, float)
            return (plain_hash(function, seed, num_buckets, value),)
        case VocabularyPlan(values, _, first_id, unknown):
            if value in values:
                return (first_id + values.index(value),)
            if unknown is None:
                shown = f'"{value}"' if isinstance(value, str) else value
                raise PlainFault(f"expected a value of the vocabulary, got {shown}")
            made.out_of_vocabulary += 1
            return (unknown,)
        case BucketizePlan(boundaries):
            assert not isinstance(value, str)
            if feature.type == "float32":
                boundaries = tuple(float(np.float32(boundary)) for boundary in boundaries)
            if value != value:
                return (len(boundaries),)
            return (sum(boundary <= value for boundary in boundaries),)
        case MultiHashPlan(num_buckets, functions, seed):
            assert not isinstance(value, float)
            if functions:
                return tuple(plain_hash(each, seed, num_buckets, value) for each in functions)
            assert isinstance(value, int)
            return divmod(value, num_buckets)


def _check_range(datatype: str, keys: Sequence[Value]) -> None:
    for key in keys:
        if isinstance(key, int):
            low, high = _HOLDS[datatype]
            if not low <= key <= high:
                raise PlainFault(
                    f"expected an integer from {low} to {high}, as {datatype} holds, got {key}"
                )
        elif isinstance(key, float) and datatype == "FP16" and 65520 <= abs(key) < math.inf:
            raise PlainFault("expected a number from -65504 to 65504, as FP16 holds, got ...")


def _fill_tensors(plan: RankingPlan, made: Sequence[list[_Made]], outputs: PlainOutputs) -> None:
    for place, fill in enumerate(plan.tensors):
        width = math.prod(fill.shape)
        users = all(
            feature.side == "user"
            for feature in plan.features
            for sink in (*feature.values, *([feature.lengths] if feature.lengths else []))
            if sink.tensor == place
        )
        rows = 1 if users else outputs.rows
        cells = np.zeros((rows, width), _TYPES[fill.datatype])
        for feature, found in zip(plan.features, made, strict=True):
            filled = {sink.tensor for sink in (*feature.values, feature.lengths) if sink}
            for row in range(rows if place in filled else 0):
                one = found[0 if feature.side == "user" else row]
                for sink, keys in zip(feature.values, one.lists, strict=False):
                    if sink.tensor == place:
                        _write(cells, row, sink, _padded(feature, keys))
                if feature.lengths is not None and feature.lengths.tensor == place:
                    cells[row, feature.lengths.column] = len(one.lists[0])
        outputs.arrays[fill.name] = cells.reshape((rows, *fill.shape))


def _padded(feature: FeaturePlan, keys: list[Value]) -> list[Value]:
    if feature.ragged is None or feature.ragged.pad_to is None:
        return keys
    padding: Value = feature.ragged.padding
    if feature.transform is None and feature.type == "string":
        padding = ""
    return keys + [padding] * (feature.ragged.pad_to - len(keys))


def _write(cells: NDArray[np.generic], row: int, sink: SinkPlan, values: Sequence[Value]) -> None:
    for offset, value in enumerate(values):
        cells[row, sink.column + offset] = value.encode() if isinstance(value, str) else value


def _flatten(feature: FeaturePlan, found: Sequence[_Made], outputs: PlainOutputs) -> None:
    for key, name in enumerate(feature.keys):
        ids = [value for made in found for value in made.lists[key]]
        array = np.array(ids, np.int64)
        width = math.prod(feature.shape)
        outputs.arrays[name] = array if width == 1 else array.reshape(-1, width)
        if feature.ragged is not None:
            lengths = [len(made.lists[0]) for made in found]
            outputs.arrays[name + ".lengths"] = np.array(lengths, np.int64)
        if feature.weighted:
            weights = [weight for made in found for weight in made.weights]
            outputs.arrays[name + ".weights"] = np.array(weights, np.float32)


def arrays_differ(
    found: Mapping[str, NDArray[np.generic]], expected: Mapping[str, NDArray[np.generic]]
) -> str:
    """Return how two sets of arrays differ, bit for bit; empty where they do not."""
    if found.keys() != expected.keys():
        return f"names {sorted(found)}, expected {sorted(expected)}"
    for name, array in expected.items():
        other = found[name]
        if (other.dtype, other.shape) != (array.dtype, array.shape):
            return f"{name}: {other.dtype}{other.shape}, expected {array.dtype}{array.shape}"
        same = (
            other.tolist() == array.tolist()
            if array.dtype == np.object_
            else np.array_equal(other, array, equal_nan=array.dtype.kind == "f")
        )
        if not same:
            return f"{name}: {other.tolist()}, expected {array.tolist()}"
    return ""
