"""Ranked requests as Arrow record batches, a row for each candidate.

docs/feature_log.md lists the columns. pyarrow is imported on use; it comes without types, so its
objects are `Any` here and in `files`, and nowhere else.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.plans import FeaturePlan, RankingPlan
from anabranch_runtime.ranking.requests import Ranked
from anabranch_server.feature_log.entries import Entry
from anabranch_server.feature_log.feature_values import (
    FeatureValues,
    feature_values,
    is_list,
    is_used,
    keys_each,
)
from anabranch_server.feature_log.misses import missed_rows
from anabranch_wire.tensors import TensorSpec

__all__ = ["batches_of", "schema_of"]

_FORMAT: Final = "1"
_MAX_VALUES: Final = 1 << 20
"""Values of a batch, about: what a user sent once is repeated for each candidate."""


def schema_of(entry: Entry) -> Any:  # noqa: ANN401  # pyarrow has no types
    """Return the `pyarrow.Schema` that all entries of the same version have."""
    pa = import_module("pyarrow")
    features = entry.rules.plan.features
    used = _used(entry.rules.plan)
    fields = [
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("time", pa.float64(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("delta", pa.int64(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("rank", pa.int32()),
        pa.field("answered", pa.bool_(), nullable=False),
        pa.field("score", pa.float32()),
        pa.field("bad", pa.string()),
    ]
    fields += [pa.field(f"output_{spec.name}", _output_type(spec)) for spec in entry.declared]
    fields += [pa.field(f"feature_{one.name}", _feature_type(one)) for one in used]
    fields += [
        pa.field(f"weights_{one.name}", pa.list_(pa.float32())) for one in used if one.weighted
    ]
    fields += [pa.field(f"missed_{one.name}", pa.bool_()) for one in features]
    return pa.schema(fields, metadata={"anabranch.feature_log": _FORMAT})


def batches_of(entry: Entry, schema: Any) -> Iterator[Any]:  # noqa: ANN401  # pyarrow has no types
    """Yield the rows of an entry as `pyarrow.RecordBatch`, each of bounded size."""
    pa = import_module("pyarrow")
    prepared, plan = entry.prepared, entry.rules.plan
    features = [feature_values(plan, prepared, one) for one in _used(plan)]
    ranked = entry.rules.finish(prepared, entry.outputs)
    missed = missed_rows(entry)
    per_row = max([1, *(len(one.values) // max(1, one.rows) for one in features)])
    step = max(1, _MAX_VALUES // per_row)
    for begin in range(0, prepared.rows, step):
        rows = range(begin, min(begin + step, prepared.rows))
        columns = [
            *_identity(entry, rows),
            *_order(entry, ranked, rows),
            *(_output(ranked, spec, prepared.rows, rows) for spec in entry.declared),
            *(_feature(one, rows) for one in features),
            *_weights(plan, features, rows),
            *(_missed(missed, one, rows) for one in plan.features),
        ]
        arrays = [pa.array(c) if isinstance(c, np.ndarray) else c for c in columns]
        yield pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)],
            schema=schema,
        )


def _used(plan: RankingPlan) -> list[FeaturePlan]:
    return [feature for feature in plan.features if is_used(feature)]


def _identity(entry: Entry, rows: range) -> Iterator[Any]:
    pa = import_module("pyarrow")
    snapshot = entry.snapshot
    for value in (entry.request_id, entry.time, snapshot.model, snapshot.version, snapshot.delta):
        yield pa.repeat(value, len(rows))
    yield np.arange(rows.start, rows.stop, dtype=np.int32)


def _order(entry: Entry, ranked: Ranked, rows: range) -> Iterator[Any]:
    """Rank, whether it was answered, score, and why there is none."""
    pa = import_module("pyarrow")
    total = entry.prepared.rows
    places = np.full(total, -1, np.int32)
    places[ranked.positions] = np.arange(1, len(ranked.positions) + 1, dtype=np.int32)
    scores = np.zeros(total, np.float32)
    scores[ranked.positions] = ranked.scores
    part = slice(rows.start, rows.stop)
    absent = places[part] < 0
    top_k = entry.top_k or total
    yield pa.array(places[part], mask=absent)
    yield pa.array(~absent & (places[part] <= top_k))
    yield pa.array(scores[part], mask=absent)
    yield pa.array([ranked.bad.get(row) for row in rows], pa.string())


def _output(ranked: Ranked, spec: TensorSpec, total: int, rows: range) -> Any:  # noqa: ANN401  # pyarrow has no types
    pa = import_module("pyarrow")
    found = ranked.outputs.get(spec.name)
    if found is None:
        return pa.nulls(len(rows), _output_type(spec))
    values = np.zeros((total, *found.shape[1:]), np.float32)
    values[ranked.positions] = found
    absent = np.ones(total, np.bool_)
    absent[ranked.positions] = False
    part = slice(rows.start, rows.stop)
    values, absent = values[part], absent[part]
    if _is_number(spec):
        return pa.array(values.reshape(len(rows)), mask=absent)
    return _lists(values.reshape(len(rows), -1), absent)


def _feature(values: FeatureValues, rows: range) -> Any:  # noqa: ANN401  # pyarrow has no types
    """One column of keys or numbers."""
    pa = import_module("pyarrow")
    inner = values.values
    part, lengths = _part(values, inner, rows)
    if part.ndim == 2:
        leaves = _lists(part, None)
    elif part.dtype == np.object_:
        leaves = pa.array([_text(one) for one in part], pa.string())
    else:
        leaves = pa.array(np.ascontiguousarray(part))
    return leaves if lengths is None else pa.ListArray.from_arrays(_offsets(lengths), leaves)


def _weights(plan: RankingPlan, features: list[FeatureValues], rows: range) -> Iterator[Any]:
    pa = import_module("pyarrow")
    for feature, values in zip(_used(plan), features, strict=True):
        if feature.weighted:
            weights = values.weights
            if weights is None:
                weights = np.ones(len(values.values), np.float32)
            part, lengths = _part(values, weights, rows)
            assert lengths is not None, "only a bag has weights"
            yield pa.ListArray.from_arrays(_offsets(lengths), pa.array(part))


def _part(
    values: FeatureValues, inner: NDArray[Any], rows: range
) -> tuple[NDArray[Any], NDArray[np.int64] | None]:
    """Values of some rows, repeated where there is one row for all, and their lengths, if any."""
    lengths = values.lengths
    if lengths is None and len(inner) != values.rows:  # a dense vector
        lengths = np.full(values.rows, len(inner) // values.rows, np.int64)
    if values.rows == 1 and (rows.start, rows.stop) != (0, 1):
        repeats = (len(rows), *([1] * (inner.ndim - 1)))
        return np.tile(inner, repeats), None if lengths is None else np.repeat(lengths, len(rows))
    if lengths is None:
        return inner[rows.start : rows.stop], None
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return inner[ends[rows.start] : ends[rows.stop]], lengths[rows.start : rows.stop]


def _missed(
    missed: Mapping[str, NDArray[np.bool_]] | None, feature: FeaturePlan, rows: range
) -> Any:  # noqa: ANN401  # pyarrow has no types
    pa = import_module("pyarrow")
    if missed is None:
        return pa.nulls(len(rows), pa.bool_())
    flags = missed.get(feature.name)
    if flags is None:
        return pa.repeat(False, len(rows))
    return pa.array(flags[rows.start : rows.stop])


def _lists(values: NDArray[Any], absent: NDArray[np.bool_] | None) -> Any:  # noqa: ANN401  # pyarrow has no types
    """A list for each row of (rows, k); null where it is absent."""
    pa = import_module("pyarrow")
    offsets = _offsets(np.full(len(values), values.shape[1], np.int64))
    mask = None if absent is None else pa.array(absent)
    return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)), mask=mask)


def _offsets(lengths: NDArray[np.int64]) -> Any:  # noqa: ANN401  # pyarrow has no types
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return import_module("pyarrow").array(ends.astype(np.int32))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _is_number(spec: TensorSpec) -> bool:
    return len(spec.shape) == 1 or spec.shape[1:] == (1,)


def _output_type(spec: TensorSpec) -> Any:  # noqa: ANN401  # pyarrow has no types
    pa = import_module("pyarrow")
    return pa.float32() if _is_number(spec) else pa.list_(pa.float32())


def _feature_type(feature: FeaturePlan) -> Any:  # noqa: ANN401  # pyarrow has no types
    pa = import_module("pyarrow")
    if feature.transform is not None or feature.type == "int64":
        kind = pa.int64()
    else:
        kind = pa.float32() if feature.type == "float32" else pa.string()
    if keys_each(feature) > 1:
        kind = pa.list_(kind)
    return pa.list_(kind) if is_list(feature) else kind
