"""What each feature of a ranking request became, row by row, found in the graph's inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.plans import FeaturePlan, RankingPlan
from anabranch_runtime.ranking.rules import PreparedRanking
from anabranch_runtime.sent_features import LENGTHS

__all__ = ["FeatureKeys", "feature_keys"]

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, eq=False)
class FeatureKeys:
    """Keys of one feature.

    Attributes:
        rows: of each row the keys of its values, (values, keys of a value).
        flat: whether a row is one value, and no list of them.
    """

    rows: Sequence[Array]
    flat: bool

    @property
    def each(self) -> int:
        """Keys of a value."""
        return self.rows[0].shape[1] if self.rows else 1


def feature_keys(plan: RankingPlan, feature: FeaturePlan, prepared: PreparedRanking) -> FeatureKeys:
    """Return the keys of a feature: as the graph takes them, or as they are looked up.

    Of a user's feature there is one row.

    Args:
        plan: of the version.
        feature: one of its features.
        prepared: what came of a request.
    """
    if feature.keys:
        width = None if feature.ragged is not None else _width(feature)
        parts = [_looked_up(name, width, prepared) for name in feature.keys]
    else:
        parts = [
            _columns(plan, sink.tensor, sink.column, _width(feature), prepared)
            for sink in feature.values
        ]
    most = 1 if feature.side == "user" else prepared.rows
    rows = [np.stack(row, axis=1) for row in zip(*parts, strict=True)][:most]
    return FeatureKeys(rows, flat=feature.ragged is None and not feature.shape)


def _width(feature: FeaturePlan) -> int:
    """Return how many values of a row the graph takes."""
    if feature.ragged is not None:
        assert feature.ragged.pad_to is not None  # bags go to lookups
        return feature.ragged.pad_to
    return int(np.prod(feature.shape, dtype=np.int64))


def _looked_up(name: str, width: int | None, prepared: PreparedRanking) -> list[Array]:
    """Return ids by row: so many each, or as many as stand beside them."""
    ids = prepared.arrays[name]
    if width is not None:
        return list(ids.reshape(-1, width))
    lengths = prepared.arrays[name + LENGTHS].astype(np.int64)
    return np.split(ids.reshape(-1), np.cumsum(lengths)[:-1])


def _columns(
    plan: RankingPlan, tensor: int, column: int, width: int, prepared: PreparedRanking
) -> list[Array]:
    array = prepared.arrays[plan.tensors[tensor].name]
    return list(array.reshape(len(array), -1)[:, column : column + width])
