"""Features: inputs of a request that are keys of table rows, where dense inputs are numbers.

A request carries each feature in one normal form, arrays of one axis and without gaps: `ids` int64;
`lengths` int64 where it is ragged, the ids of each row, which add up to all ids; `weights` float32
where it is weighted, one for each id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.tensors import TensorSpec

__all__ = ["FeatureInput", "FeaturePlace", "cut_feature", "feature_rows", "place_features"]

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class FeatureInput:
    """One feature, as callers send it.

    Attributes:
        name: of the input that carries its ids; parts beside it are called `name.part`.
        max_length: ids per row: exactly, or at most where it is ragged.
        ragged: whether rows differ in their number of ids.
        weighted: whether an id may have a factor.
        is_user: whether one row of it may stand for all rows of a request.
        once: whether it is looked up once for such a row, and not for each row of the request.
    """

    name: str
    max_length: int = 1
    ragged: bool = False
    weighted: bool = False
    is_user: bool = False
    once: bool = False

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise ValueError(f"feature {self.name!r}: max_length {self.max_length} is below 1")
        if self.once and not self.is_user:
            raise ValueError(f"feature {self.name!r}: only one of a user is looked up once")

    @property
    def spec(self) -> TensorSpec:
        """Its ids as metadata shows them: flat where it is ragged, else a column for each id."""
        shape = (-1,) if self.ragged else (-1, self.max_length)
        return TensorSpec(self.name, "INT64", shape)


@dataclass(frozen=True, slots=True)
class FeaturePlace:
    """Where the arrays of a feature are among the inputs of a request; None: it has none."""

    ids: int
    lengths: int | None
    weights: int | None


def place_features(features: Sequence[FeatureInput], first: int) -> tuple[FeaturePlace, ...]:
    """Return the places of features whose arrays begin at position `first`, one after another."""
    places: list[FeaturePlace] = []
    at = first
    for feature in features:
        ids = at
        at += 1
        lengths = weights = None
        if feature.ragged:
            lengths = at
            at += 1
        if feature.weighted:
            weights = at
            at += 1
        places.append(FeaturePlace(ids, lengths, weights))
    return tuple(places)


def feature_rows(feature: FeatureInput, place: FeaturePlace, inputs: Sequence[Array]) -> int:
    """Return how many rows of a feature there are in normal form."""
    if place.lengths is not None:
        return len(inputs[place.lengths])
    return len(inputs[place.ids]) // feature.max_length


def cut_feature(
    feature: FeatureInput, place: FeaturePlace, inputs: Sequence[Array], bounds: Sequence[int]
) -> list[tuple[Array, ...]]:
    """Cut a feature in normal form by rows.

    Args:
        feature: which.
        place: where its arrays are.
        inputs: of the request.
        bounds: first 0, last its rows, rising.

    Returns:
        For each part its arrays in order, views of those in `inputs`.
    """
    if place.lengths is None:
        ends = [bound * feature.max_length for bound in bounds]
    else:
        lengths = inputs[place.lengths]
        sums = np.cumsum(lengths, dtype=np.int64)
        ends = [int(sums[bound - 1]) if bound else 0 for bound in bounds]
    parts: list[tuple[Array, ...]] = []
    for (begin, end), (first, last) in zip(pairwise(ends), pairwise(bounds), strict=True):
        part = [inputs[place.ids][begin:end]]
        if place.lengths is not None:
            part.append(inputs[place.lengths][first:last])
        if place.weights is not None:
            part.append(inputs[place.weights][begin:end])
        parts.append(tuple(part))
    return parts
