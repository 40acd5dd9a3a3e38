"""Models that rank, with plans for them: their scores are exact and simple."""

from pathlib import Path
from typing import Final

import msgspec

from anabranch_runtime.lookups import lookups_of
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.ranking.plans import (
    FeaturePlan,
    RaggedPlan,
    RankingPlan,
    SinkPlan,
    TensorFill,
    VocabularyPlan,
)
from anabranch_testing.graphs import write_graph
from anabranch_testing.looked_up import looked_up_plan
from anabranch_wire.tensors import TensorSpec

__all__ = ["MAX_TAGS", "ranked_lookups", "ranked_lookups_plan", "ranked_model", "ranked_plan"]

MAX_TAGS: Final = 3


def ranked_model(folder: Path) -> DenseModel:
    """ctr = age + 10 * country + price + tags; cvr = price; both = [age, price], for each item.

    `country` is a place in [de, at, fr] from 1 on, `tags` the number of tags.
    """
    path = write_graph(
        folder,
        "rank (float[N, 1] age, int64[N, 1] country, int64[N, 1] item, float[N, 1] price, "
        "int64[N, 4] tags) => (float[N, 1] ctr, float[N] cvr, float[N, 2] both) "
        "<float ten = {10.0}, int64[1] one = {1}, int64[1] three = {3}, float none = {0.0}> { "
        "place = Cast <to: int = 1> (country) "
        "counted = Gather <axis: int = 1> (tags, three) "
        "tagged = Cast <to: int = 1> (counted) "
        "known = Cast <to: int = 1> (item) "
        "nothing = Mul(known, none) "
        "tens = Mul(place, ten) "
        "user = Add(age, tens) "
        "priced = Add(user, price) "
        "full = Add(priced, tagged) "
        "ctr = Add(full, nothing) "
        "cvr = Squeeze(price, one) "
        "both = Concat <axis: int = 1> (age, price) }",
    )
    inputs = (
        TensorSpec("age", "FP32", (-1, 1)),
        TensorSpec("country", "INT64", (-1, 1)),
        TensorSpec("item", "INT64", (-1, 1)),
        TensorSpec("price", "FP32", (-1, 1)),
        TensorSpec("tags", "INT64", (-1, MAX_TAGS + 1)),
    )
    outputs = (
        TensorSpec("ctr", "FP32", (-1, 1)),
        TensorSpec("cvr", "FP32", (-1,)),
        TensorSpec("both", "FP32", (-1, 2)),
    )
    return DenseModel(path, inputs, outputs, RowLayout(True, 1, (0,) * 5, (0,) * 3))


def ranked_plan(**fields: object) -> RankingPlan:
    """Return the plan of `ranked_model`: what callers send is age, country, item_id, price, tags.

    Args:
        fields: of the plan, in place of those here.
    """
    plan = RankingPlan(
        features=(
            FeaturePlan(
                name="age", side="user", type="float32", default=(30.0,), values=(SinkPlan(0, 0),)
            ),
            FeaturePlan(
                name="country",
                side="user",
                type="string",
                transform=VocabularyPlan(("de", "at", "fr"), None, 1, 0),
                values=(SinkPlan(1, 0),),
            ),
            FeaturePlan(name="item_id", side="candidate", type="int64", values=(SinkPlan(2, 0),)),
            FeaturePlan(name="price", side="candidate", type="float32", values=(SinkPlan(3, 0),)),
            FeaturePlan(
                name="tags",
                side="candidate",
                type="int64",
                default=(),
                ragged=RaggedPlan(MAX_TAGS, "first", MAX_TAGS, 0),
                values=(SinkPlan(4, 0),),
                lengths=SinkPlan(4, MAX_TAGS),
            ),
        ),
        tensors=(
            TensorFill("age", "FP32", (1,), once=True),
            TensorFill("country", "INT64", (1,), once=True),
            TensorFill("item", "INT64", (1,), once=False),
            TensorFill("price", "FP32", (1,), once=False),
            TensorFill("tags", "INT64", (MAX_TAGS + 1,), once=False),
        ),
        id="item_id",
        heads=("ctr",),
        weights=(1.0,),
        formula="head",
    )
    return msgspec.structs.replace(plan, **fields)


def ranked_lookups(folder: Path) -> DenseModel:
    """The model of `looked_up` with its `x` as a score of its own."""
    path = write_graph(
        folder,
        "looked (float[N, 3] user, float[N, 1] x, float[N, 9] rows) "
        "=> (float[N, 1] score, float[N, 13] y) "
        "{ score = Identity(x) y = Concat <axis: int = 1> (x, rows, user) }",
    )
    inputs = (
        TensorSpec("user", "FP32", (-1, 3)),
        TensorSpec("x", "FP32", (-1, 1)),
        TensorSpec("rows", "FP32", (-1, 9)),
    )
    outputs = (TensorSpec("score", "FP32", (-1, 1)), TensorSpec("y", "FP32", (-1, 13)))
    return DenseModel(
        path,
        inputs,
        outputs,
        RowLayout(True, 1, (0, 0, 0), (0, 0)),
        lookups=lookups_of(looked_up_plan(), inputs),
    )


def ranked_lookups_plan() -> RankingPlan:
    """Return the plan of `ranked_lookups`; keys are sent as they are."""

    def keyed(name: str, side: str, **more: object) -> FeaturePlan:
        return FeaturePlan(name=name, side=side, type="int64", keys=(name,), **more)  # type: ignore[arg-type]  # fields by name

    bag = RaggedPlan(1000, "first", None, 0)
    return RankingPlan(
        features=(
            FeaturePlan(
                name="x",
                side="candidate",
                type="float32",
                default=(0.0,),
                values=(SinkPlan(0, 0),),
            ),
            keyed("city", "candidate"),
            keyed("tags", "candidate", ragged=bag, weighted=True, default=()),
            keyed("pair", "candidate", shape=(2,)),
            keyed("clicks", "user", ragged=bag),
        ),
        tensors=(TensorFill("x", "FP32", (1,), once=False),),
        id="city",
        heads=("score",),
        weights=(1.0,),
        formula="head",
    )
