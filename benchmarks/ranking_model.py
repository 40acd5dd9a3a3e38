"""The model of the ranking benchmark: thirty features, each with an input of the graph of its own.

Eighteen are the user's, twelve the candidates'; strings are hashed, numbers put into buckets,
sequences padded. The graph adds up all its inputs: what is measured comes before it.
"""

import math
from pathlib import Path
from typing import Final, Literal

import onnx
from onnx import TensorProto, helper

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    FeaturePlan,
    HashPlan,
    RaggedPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
    VocabularyPlan,
)
from anabranch_wire.tensors import TensorSpec

__all__ = ["DEVICES", "HISTORY", "TAGS", "WORDS", "dense_model", "ranking_plan", "users_inputs"]

DEVICES: Final = ("ios", "android", "web")
HISTORY: Final = 50
"""Items that the user saw."""
WORDS: Final = 8
"""Words of the query."""
TAGS: Final = 4
"""Tags of a candidate, at most."""

_HASH: Final = HashPlan("farmhash_fingerprint64", 1_000_000)
_OTHER_HASH: Final = HashPlan("xxh64", 1_000_000, 7)
_BUCKETS: Final = BucketizePlan(tuple(float(bound) for bound in range(0, 200, 10)))

_USER: Final = (
    FeaturePlan(name="user_id", side="user", type="int64"),
    FeaturePlan(name="session", side="user", type="string", transform=_OTHER_HASH),
    FeaturePlan(name="country", side="user", type="string", transform=_HASH),
    FeaturePlan(name="language", side="user", type="string", transform=_HASH),
    FeaturePlan(name="city", side="user", type="string", transform=_HASH),
    FeaturePlan(
        name="device",
        side="user",
        type="string",
        transform=VocabularyPlan(DEVICES, None, 1, 0),
    ),
    FeaturePlan(name="age", side="user", type="float32", transform=_BUCKETS),
    FeaturePlan(name="hour", side="user", type="int64"),
    *(FeaturePlan(name=f"rate_{n}", side="user", type="float32") for n in range(6)),
    FeaturePlan(name="affinity", side="user", type="float32", shape=(8,)),
    FeaturePlan(
        name="history", side="user", type="int64", ragged=RaggedPlan(HISTORY, "last", HISTORY, 0)
    ),
    FeaturePlan(
        name="query",
        side="user",
        type="string",
        transform=_HASH,
        ragged=RaggedPlan(WORDS, "first", WORDS, 0),
    ),
    FeaturePlan(name="plan", side="user", type="int64", default=(0,)),
)
_CANDIDATE: Final = (
    FeaturePlan(name="item_id", side="candidate", type="int64"),
    FeaturePlan(name="author", side="candidate", type="int64", transform=_HASH),
    FeaturePlan(name="category", side="candidate", type="string", transform=_HASH),
    FeaturePlan(name="brand", side="candidate", type="string", transform=_OTHER_HASH),
    FeaturePlan(name="price", side="candidate", type="float32", transform=_BUCKETS),
    *(FeaturePlan(name=f"score_{n}", side="candidate", type="float32") for n in range(4)),
    FeaturePlan(name="embedding", side="candidate", type="float32", shape=(8,)),
    FeaturePlan(
        name="tags",
        side="candidate",
        type="string",
        transform=_HASH,
        ragged=RaggedPlan(TAGS, "first", TAGS, 0),
    ),
    FeaturePlan(name="slot", side="candidate", type="int64", default=(0,)),
)


def ranking_plan() -> RankingPlan:
    """Return how the model ranks."""
    features = (*_USER, *_CANDIDATE)
    return RankingPlan(
        features=tuple([_filling(feature, place) for place, feature in enumerate(features)]),
        tensors=tuple(
            [
                TensorFill(
                    feature.name, _datatype(feature), (_columns(feature),), feature.side == "user"
                )
                for feature in features
            ]
        ),
        id="item_id",
        heads=("score",),
        weights=(1.0,),
        formula="head",
    )


def users_inputs() -> tuple[str, ...]:
    """Return the inputs that may be sent once for all rows."""
    return tuple([feature.name for feature in _USER])


def dense_model(path: Path) -> DenseModel:
    """Write the graph to `path` and return what a backend must know of it."""
    inputs = tuple(
        [
            TensorSpec(feature.name, _datatype(feature), (-1, _columns(feature)))
            for feature in (*_USER, *_CANDIDATE)
        ]
    )
    path.write_bytes(_graph(inputs).SerializeToString())
    axes = (0,) * len(inputs)
    return DenseModel(
        path, inputs, (TensorSpec("score", "FP32", (-1, 1)),), RowLayout(True, 1, axes, (0,))
    )


def _filling(feature: FeaturePlan, tensor: int) -> FeaturePlan:
    """The feature with a tensor of its own."""
    fields = {name: getattr(feature, name) for name in feature.__struct_fields__}
    return FeaturePlan(**{**fields, "values": (SinkPlan(tensor, 0),)})


def _datatype(feature: FeaturePlan) -> Literal["FP32", "INT64"]:
    return "FP32" if feature.type == "float32" and feature.transform is None else "INT64"


def _columns(feature: FeaturePlan) -> int:
    if feature.ragged is not None:
        return feature.ragged.pad_to or feature.ragged.max_length
    return math.prod(feature.shape)


def _graph(inputs: tuple[TensorSpec, ...]) -> onnx.ModelProto:
    """The sum of all numbers of a row."""
    nodes = []
    for spec in inputs:
        nodes.append(
            helper.make_node("Cast", [spec.name], [f"{spec.name}/f"], to=TensorProto.FLOAT)
        )
        nodes.append(
            helper.make_node("ReduceSum", [f"{spec.name}/f", "one"], [f"{spec.name}/s"], keepdims=1)
        )
    nodes.append(helper.make_node("Sum", [f"{spec.name}/s" for spec in inputs], ["score"]))
    graph = helper.make_graph(
        nodes,
        "ranking",
        [
            helper.make_tensor_value_info(
                spec.name,
                TensorProto.FLOAT if spec.datatype == "FP32" else TensorProto.INT64,
                ["N", spec.shape[1]],
            )
            for spec in inputs
        ],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N", 1])],
        [helper.make_tensor("one", TensorProto.INT64, [1], [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return model
