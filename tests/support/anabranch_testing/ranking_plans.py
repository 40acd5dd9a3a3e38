"""Plans of rankings for tests, made of features in few words."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from anabranch_runtime.ranking.feature_program import ColumnLimits
from anabranch_runtime.ranking.plans import (
    FeaturePlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
)
from anabranch_runtime.ranking.requests import RankRequest, SentColumns
from anabranch_wire.tensors import TensorSpec

__all__ = ["LIMITS", "OUTPUTS", "asked", "ranking_plan", "scored_by", "with_tensors"]

LIMITS = ColumnLimits(max_rows=10_000, max_values=100_000, max_string_bytes=10_000_000)

OUTPUTS = (
    TensorSpec("ctr", "FP32", (-1,)),
    TensorSpec("cvr", "FP32", (-1, 1)),
    TensorSpec("emb", "FP32", (-1, 3)),
    TensorSpec("text", "BYTES", (-1,)),
)


def ranking_plan(features: Sequence[FeaturePlan], **fields: object) -> RankingPlan:
    """A plan whose features each fill an input of their own name; `ctr` is the score.

    Args:
        features: without `values`; the first of the candidates' is the id.
        fields: of the plan, in place of those here.
    """
    filled, tensors = with_tensors(features)
    plan = RankingPlan(
        features=filled,
        tensors=tensors,
        id=next(feature.name for feature in features if feature.side == "candidate"),
        heads=("ctr",),
        weights=(1.0,),
        formula="head",
    )
    return msgspec.structs.replace(plan, **fields)


def scored_by(
    formula: Literal["weighted_sum", "product_of_powers"], weights: Mapping[str, float]
) -> dict[str, object]:
    """Fields of a plan whose score is made of several heads."""
    return {"formula": formula, "heads": tuple(weights), "weights": tuple(weights.values())}


def with_tensors(
    features: Sequence[FeaturePlan],
) -> tuple[tuple[FeaturePlan, ...], tuple[TensorFill, ...]]:
    """Give each feature that is not looked up an input of its own name."""
    filled: list[FeaturePlan] = []
    tensors: list[TensorFill] = []
    for feature in features:
        if feature.keys:
            filled.append(feature)
            continue
        sink = SinkPlan(len(tensors), 0)
        shape = feature.shape if feature.ragged is None else (feature.ragged.pad_to or 0,)
        is_number = feature.type == "float32" and feature.transform is None
        once = feature.side == "user"
        datatype = "FP32" if is_number else "INT64"
        tensors.append(TensorFill(feature.name, datatype, shape, once))
        filled.append(msgspec.structs.replace(feature, values=(sink,)))
    return tuple(filled), tuple(tensors)


def asked(
    user: SentColumns | None = None,
    candidates: SentColumns | None = None,
    *,
    outputs: tuple[str, ...] = (),
    top_k: int = 0,
    routing_key: str | int | None = None,
) -> RankRequest:
    """A request in JSON."""
    return RankRequest(
        form="json",
        user=user or {},
        candidates=candidates or {},
        outputs=outputs,
        top_k=top_k,
        routing_key=routing_key,
    )
