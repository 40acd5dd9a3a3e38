"""What the features of a request became, taken out of the arrays that the graph and lookups get.

The inverse of `anabranch_runtime.ranking.plans`: from columns of tensors and flat keys back to one
column for each feature, without a copy where they lie side by side.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.plans import FeaturePlan, MultiHashPlan, RankingPlan
from anabranch_runtime.ranking.rules import PreparedRanking
from anabranch_runtime.sent_features import LENGTHS, WEIGHTS

__all__ = ["FeatureValues", "feature_values", "is_list", "is_used", "keys_each", "row_width"]

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, eq=False)
class FeatureValues:
    """One feature after its transform.

    Attributes:
        rows: as many as candidates, or one for all of them.
        values: (values,), or (values, k) where each value has k keys: int64 keys, float32 numbers,
            or strings as objects.
        lengths: int64 (rows,), values of each row; None where every row has as many.
        weights: float32 (values,); None where the feature has none.
    """

    rows: int
    values: Array
    lengths: NDArray[np.int64] | None = None
    weights: NDArray[np.float32] | None = None


def keys_each(feature: FeaturePlan) -> int:
    """How many keys each value of a feature becomes."""
    if isinstance(feature.transform, MultiHashPlan):
        return len(feature.transform.functions) or 2
    return 1


def row_width(feature: FeaturePlan) -> int:
    """How many values a row has where every row has as many; in tensors, those that pad it."""
    if feature.ragged is not None:
        return feature.ragged.pad_to or 0
    return math.prod(feature.shape)


def is_used(feature: FeaturePlan) -> bool:
    """Whether a feature becomes anything: ids and routing keys may go nowhere."""
    return bool(feature.keys or feature.values)


def is_list(feature: FeaturePlan) -> bool:
    """Whether a row may have another number of values than one."""
    return feature.ragged is not None or bool(feature.shape)


def feature_values(
    plan: RankingPlan, prepared: PreparedRanking, feature: FeaturePlan
) -> FeatureValues:
    """Return what a feature of the plan that is used became in one request."""
    if feature.keys:
        return _flat(feature, prepared)
    return _of_tensors(plan, feature, prepared)


def _flat(feature: FeaturePlan, prepared: PreparedRanking) -> FeatureValues:
    """Keys that lookups read."""
    arrays = prepared.arrays
    first = feature.keys[0]
    ids = [arrays[name].reshape(-1) for name in feature.keys]
    values = ids[0] if len(ids) == 1 else np.stack(ids, axis=1)
    lengths = arrays.get(first + LENGTHS)
    weights = arrays.get(first + WEIGHTS)
    return FeatureValues(
        rows=len(values) // row_width(feature) if lengths is None else len(lengths),
        values=values.astype(np.int64, copy=False),
        lengths=None if lengths is None else lengths.astype(np.int64, copy=False),
        weights=None if weights is None else weights.astype(np.float32, copy=False),
    )


def _of_tensors(
    plan: RankingPlan, feature: FeaturePlan, prepared: PreparedRanking
) -> FeatureValues:
    """Values that lie in inputs of the graph."""
    width = row_width(feature)
    columns: list[Array] = []
    for sink in feature.values:
        tensor = prepared.arrays[plan.tensors[sink.tensor].name]
        rows = len(tensor)
        columns.append(tensor.reshape(rows, -1)[:, sink.column : sink.column + width])
    values = columns[0] if len(columns) == 1 else np.stack(columns, axis=2)
    values = values.astype(_kind(feature), copy=False)
    rows, inner = len(values), values.shape[2:]
    if feature.lengths is None:
        ragged = feature.ragged is not None
        lengths = np.full(rows, width, np.int64) if ragged else None
        return FeatureValues(rows, values.reshape(rows * width, *inner), lengths)
    tensor = prepared.arrays[plan.tensors[feature.lengths.tensor].name]
    lengths = tensor.reshape(len(tensor), -1)[:, feature.lengths.column].astype(np.int64)
    if len(lengths) != rows:  # one of the two is the user's alone, the other one shared
        rows = max(rows, len(lengths))
        values = np.broadcast_to(values, (rows, *values.shape[1:]))
        lengths = np.broadcast_to(lengths, rows)
    return FeatureValues(rows, values[np.arange(width) < lengths[:, None]], lengths)


def _kind(feature: FeaturePlan) -> np.dtype[np.generic]:
    if feature.transform is not None or feature.type == "int64":
        return np.dtype(np.int64)
    return np.dtype(np.float32 if feature.type == "float32" else np.object_)
