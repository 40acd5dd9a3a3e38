"""What the lookups of a model mean for its requests: features come in, inputs of the graph go out.

A plan names features and buffers; here they are tied to a graph, once per version. The inputs of a
request are then the dense ones in the graph's order, and behind them the arrays of each feature.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.combined_lookups import SeparatePlan, separated
from anabranch_runtime.feature_rules import part_names
from anabranch_runtime.features import (
    FeatureInput,
    FeaturePlace,
    cut_feature,
    feature_rows,
    place_features,
)
from anabranch_runtime.sent_features import LENGTHS, OFFSETS, WEIGHTS
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.lookups import Lookup, Offsets
from anabranch_wire.plan import Buffer, Plan
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["Lookups", "lookups_of"]

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True, eq=False)
class Lookups:
    """The lookups of one version, tied to its graph; `lookups_of` makes it.

    Attributes:
        plan: which rows become which columns of which buffer.
        features: what requests bring for them, in the order of the plan.
        places: where the arrays of each feature are among the inputs of a request.
        sources: for each lookup of the plan the feature that it reads.
        dense: positions of the graph's inputs that requests bring, in order.
        buffers: positions of the graph's inputs that lookups fill, in the order of the plan.
        request_inputs: dense inputs and features as metadata shows them.
        separate: the plan as a store runs it, and what is joined afterwards.
    """

    plan: Plan
    features: tuple[FeatureInput, ...]
    places: tuple[FeaturePlace, ...]
    sources: tuple[int, ...]
    dense: tuple[int, ...]
    buffers: tuple[int, ...]
    request_inputs: tuple[TensorSpec, ...]
    separate: SeparatePlan

    def users(self, inputs: Sequence[Array], rows: int) -> int:
        """Return for how many users a request of `rows` rows is looked up: one, or one per row."""
        for feature, place in zip(self.features, self.places, strict=True):
            if feature.once:
                return feature_rows(feature, place, inputs)
        return rows

    def cut(
        self, inputs: Sequence[Array], axes: Sequence[int | None], bounds: Sequence[int]
    ) -> list[tuple[Array, ...]]:
        """Cut the inputs of a request into parts by rows; what has no rows repeats.

        Args:
            inputs: of the request.
            axes: per input of the graph the axis that carries the rows: 0 or None.
            bounds: first 0, last the rows of the request, rising.

        Returns:
            The inputs of each part, views of those of the request.
        """
        parts: list[list[Array]] = [
            [
                inputs[at] if axes[index] is None else inputs[at][begin:end]
                for at, index in enumerate(self.dense)
            ]
            for begin, end in pairwise(bounds)
        ]
        for feature, place in zip(self.features, self.places, strict=True):
            rows = feature_rows(feature, place, inputs)
            if rows == bounds[-1]:
                pieces = cut_feature(feature, place, inputs, bounds)
            else:
                pieces = cut_feature(feature, place, inputs, (0, rows)) * len(parts)
            for part, piece in zip(parts, pieces, strict=True):
                part += piece
        return [tuple(part) for part in parts]


def lookups_of(
    plan: Plan, graph_inputs: Sequence[TensorSpec], user_inputs: Collection[str] = ()
) -> Lookups | None:
    """Tie the lookups of `plan` to the graph that they feed; None where there are none.

    Args:
        plan: of the version.
        graph_inputs: of its dense graph, in order.
        user_inputs: features that may hold one user for all rows of a request; those that are
            looked up per user may in any case.

    Raises:
        InvalidInput: plan and graph contradict each other.
        Unsupported: it takes ids out of graph inputs, or has graphs beside the dense one.
    """
    if not plan.lookups:
        return None
    if plan.graphs.prelude is not None or plan.graphs.user is not None:
        raise Unsupported("plan.json: this release runs no prelude or user graph")
    features: dict[str, FeatureInput] = {}
    for index, lookup in enumerate(plan.lookups):
        feature = _feature_of(lookup, f"plan.json: lookups[{index}]", user_inputs)
        known = features.setdefault(feature.name, feature)
        if known != feature:
            features[feature.name] = _both(known, feature)
    positions = {spec.name: index for index, spec in enumerate(graph_inputs)}
    _check_names(list(features.values()), positions)
    buffers = tuple(_position(buffer, positions, graph_inputs) for buffer in plan.buffers)
    dense = tuple(index for index in range(len(graph_inputs)) if index not in buffers)
    order = list(features)
    return Lookups(
        plan=plan,
        features=tuple(features.values()),
        places=place_features(list(features.values()), len(dense)),
        sources=tuple(order.index(lookup.ids.input) for lookup in plan.lookups),
        dense=dense,
        buffers=buffers,
        request_inputs=(
            *(graph_inputs[index] for index in dense),
            *(feature.spec for feature in features.values()),
        ),
        separate=separated(plan),
    )


def _feature_of(lookup: Lookup, where: str, user_inputs: Collection[str]) -> FeatureInput:
    ids, bags, weights = lookup.ids, lookup.lengths, lookup.weights
    name = ids.input
    if ids.columns is not None or ids.cast != "none" or ids.add:
        raise Unsupported(f"{where}: this release takes ids from features as they come")
    for part, suffix in (
        (bags, OFFSETS if isinstance(bags, Offsets) else LENGTHS),
        (weights, WEIGHTS),
    ):
        if part is not None and (part.input != name + suffix or part.columns is not None):
            raise Unsupported(
                f"{where}: expected {name + suffix!r} beside ids {name!r}, got {part.input!r}"
            )
    once = lookup.side == "user"
    return FeatureInput(
        name=name,
        max_length=lookup.max_length,
        ragged=bags is not None,
        weighted=weights is not None,
        is_user=once or name in user_inputs,
        once=once,
    )


def _both(one: FeatureInput, two: FeatureInput) -> FeatureInput:
    """A feature that serves two lookups."""
    fixed = not one.ragged
    if one.ragged != two.ragged or (fixed and one.max_length != two.max_length):
        raise InvalidInput(
            f"plan.json: lookups of feature {one.name!r} differ in how many ids a row has"
        )
    if one.once != two.once:
        raise InvalidInput(f"plan.json: lookups of feature {one.name!r} differ in their side")
    return FeatureInput(
        name=one.name,
        max_length=min(one.max_length, two.max_length),
        ragged=one.ragged,
        weighted=one.weighted or two.weighted,
        is_user=one.is_user,
        once=one.once,
    )


def _check_names(features: Sequence[FeatureInput], graph_inputs: Collection[str]) -> None:
    taken = set(graph_inputs)
    for feature in features:
        for name in part_names(feature):
            if name in taken:
                raise InvalidInput(
                    f"feature {feature.name!r}: another input of the model is called {name!r}; "
                    "give the feature another name"
                )
            taken.add(name)


def _position(buffer: Buffer, positions: dict[str, int], graph_inputs: Sequence[TensorSpec]) -> int:
    index = positions.get(buffer.name)
    if index is None:
        raise InvalidInput(f"plan.json: buffer {buffer.name!r} is no input of the graph")
    spec = graph_inputs[index]
    datatype: Datatype = "FP32" if buffer.dtype == "f32" else "FP16"
    shape = spec.shape
    if (
        spec.datatype != datatype
        or len(shape) != 2
        or shape[0] != -1
        or shape[1] not in (-1, buffer.columns)
    ):
        raise InvalidInput(
            f"plan.json: buffer {buffer.name!r} is {datatype} [-1, {buffer.columns}], the graph's "
            f"input is {spec.datatype} {list(shape)}"
        )
    return index
