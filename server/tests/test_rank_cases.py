"""One table of requests through both ranking doors: they answer and refuse alike."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.ranking.plans import (
    FeaturePlan,
    RaggedPlan,
    RankingPlan,
    SequencePlan,
    SinkPlan,
)
from anabranch_server.limits import Limits
from anabranch_testing.doors import FRESHNESS, door_context
from anabranch_testing.graphs import scale_model, write_graph
from anabranch_testing.item_files import write_items
from anabranch_testing.looked_up import KEYS, key_of, open_store, view_of
from anabranch_testing.ranked_doors import RankDoors, Ranking, Refusal, rank_doors
from anabranch_testing.ranked_models import (
    MAX_TAGS,
    ranked_lookups,
    ranked_lookups_plan,
    ranked_model,
    ranked_plan,
)
from anabranch_testing.ranking_plans import ranking_plan
from anabranch_wire.tensors import TensorSpec

PLAN = ranked_plan()
LOOKUPS = ranked_lookups_plan()
LIMITS = Limits(max_rows=50, max_tensors=8, max_elements=200, max_string_bytes=40)


def strict_plan(*, report: bool) -> RankingPlan:
    """The plan with tags that must not be too many."""
    features = tuple(
        msgspec.structs.replace(one, ragged=RaggedPlan(MAX_TAGS, "error", MAX_TAGS, 0))
        if one.name == "tags"
        else one
        for one in PLAN.features
    )
    return ranked_plan(features=features, report_bad=report)


def string_ids() -> RankingPlan:
    """The plan with ids that are strings, which the graph sees as places in a list."""
    item = FeaturePlan(
        name="item_id",
        side="candidate",
        type="string",
        transform=msgspec.structs.replace(PLAN.features[1].transform, values=("a", "b", "c")),  # type: ignore[type-var]  # a vocabulary
        values=(SinkPlan(2, 0),),
    )
    features = tuple(item if one.name == "item_id" else one for one in PLAN.features)
    return ranked_plan(features=features)


SEQUENCE = RaggedPlan(3, "last", 3, 0)
SEQUENCED = ranking_plan(
    [
        FeaturePlan(name="recent", side="user", type="int64", ragged=SEQUENCE),
        FeaturePlan(name="prices", side="user", type="float32", ragged=SEQUENCE),
        FeaturePlan(name="item_id", side="candidate", type="int64"),
    ]
)


def sequenced_model(folder: Path) -> DenseModel:
    """ctr = the sum of the prices of the user's recent items, and the item's id."""
    path = write_graph(
        folder,
        "g (int64[N, 3] recent, float[N, 3] prices, int64[N] item_id) => (float[N] ctr) "
        "<int64[1] axis = {1}> { sum = ReduceSum <keepdims: int = 0> (prices, axis) "
        "id = Cast <to: int = 1> (item_id) ctr = Add(sum, id) }",
    )
    inputs = (
        TensorSpec("recent", "INT64", (-1, 3)),
        TensorSpec("prices", "FP32", (-1, 3)),
        TensorSpec("item_id", "INT64", (-1,)),
    )
    layout = RowLayout(True, 1, (0,) * 3, (0,))
    return DenseModel(path, inputs, (TensorSpec("ctr", "FP32", (-1,)),), layout)


def sequenced_plan(folder: Path, missing: float | None) -> RankingPlan:
    """The plan with a table of the prices of 11 and 12."""
    sequences = [SequencePlan("prices", "recent", "prices", missing)]
    columns = {"prices": [0.5, 2.5]}
    items = write_items(folder, [11, 12], columns, SEQUENCED.features, sequences)
    return msgspec.structs.replace(SEQUENCED, item_table=items)


PLANS = {
    "ranked": PLAN,
    "rising": ranked_plan(descending=False),
    "sum": ranked_plan(heads=("ctr", "cvr"), weights=(0.5, 2.0), formula="weighted_sum"),
    "strict": strict_plan(report=False),
    "reports": strict_plan(report=True),
    "strings": string_ids(),
    "looked": LOOKUPS,
}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankDoors]:
    folder: Path = tmp_path_factory.mktemp("models")
    models = {name: ranked_model(folder / name) for name, plan in PLANS.items() if name != "looked"}
    models["looked"] = ranked_lookups(folder / "looked")
    models["plain"] = scale_model(folder / "plain")
    models["items"] = ranked_model(folder / "items")
    items = write_items(
        folder,
        [11, 12, 13],
        {"price": [9.0, 12.0, 3.0], "tags": [[1], None, [1, 2]]},
        PLAN.features,
    )
    rankings = PLANS | {
        "items": ranked_plan(item_table=items),
        "reported_items": ranked_plan(item_table=items, report_bad=True),
    }
    models["reported_items"] = ranked_model(folder / "reported_items")
    models["sequences"] = sequenced_model(folder / "sequences")
    models["strict_sequences"] = sequenced_model(folder / "strict_sequences")
    rankings |= {
        "sequences": sequenced_plan(folder / "sequences", missing=-1.5),
        "strict_sequences": sequenced_plan(folder / "strict_sequences", missing=None),
    }
    stores = {"looked": view_of(open_store(folder / "store"))}
    with (
        door_context(models, limits=LIMITS, stores=stores, rankings=rankings) as context,
        rank_doors(context) as doors,
    ):
        yield doors


USER = {"age": 20.0, "country": "at"}
THREE = {"item_id": [11, 12, 13], "price": [9.0, 12.0, 3.0]}


def asked(**fields: object) -> dict[str, Any]:
    return {"user": USER, "candidates": THREE, **fields}


def score(price: float, *, age: float = 20.0, place: int = 2, tags: int = 0) -> float:
    return age + 10 * place + price + tags


GOOD: dict[str, tuple[str, dict[str, Any], list[int], list[float]]] = {
    "all": ("ranked", asked(), [1, 0, 2], [score(12), score(9), score(3)]),
    "top": ("ranked", asked(top_k=2), [1, 0], [score(12), score(9)]),
    "top of more": ("ranked", asked(top_k=100), [1, 0, 2], [score(12), score(9), score(3)]),
    "rising": ("rising", asked(), [2, 0, 1], [score(3), score(9), score(12)]),
    "ties": (
        "ranked",
        asked(candidates={"item_id": [5, 5, 6], "price": [1.0, 1.0, 1.0]}),
        [0, 1, 2],
        [score(1)] * 3,
    ),
    "several heads": (
        "sum",
        asked(top_k=1),
        [1],
        [0.5 * score(12) + 2 * 12],
    ),
    "unknown country": (
        "ranked",
        asked(user={"age": 1.0, "country": "xx"}, top_k=1),
        [1],
        [score(12, age=1, place=0)],
    ),
    "age by default": (
        "ranked",
        asked(user={"country": "de"}, top_k=1, explain=True),
        [1],
        [score(12, age=30, place=1)],
    ),
    "tags": (
        "ranked",
        asked(candidates={**THREE, "tags": [[1, 2], [], [4, 5, 6, 7, 8, 9]]}),
        [1, 0, 2],
        [score(12), score(9, tags=2), score(3, tags=3)],
    ),
    "one": ("ranked", asked(candidates={"item_id": [7], "price": [0.5]}), [0], [score(0.5)]),
    "none": (
        "ranked",
        asked(candidates={"item_id": [], "price": []}, outputs=["both"], explain=True),
        [],
        [],
    ),
    "strings": (
        "strings",
        asked(candidates={"item_id": ["c", "", "ü"], "price": [1.0, 2.0, 3.0]}),
        [2, 1, 0],
        [score(3), score(2), score(1)],
    ),
    "large ids": (
        "ranked",
        asked(candidates={"item_id": [2**62, -(2**63), 2**63 - 1], "price": [3.0, 2.0, 1.0]}),
        [0, 1, 2],
        [score(3), score(2), score(1)],
    ),
    "infinite": (
        "ranked",
        asked(candidates={"item_id": [1, 2, 3], "price": [1.0, float("inf"), float("-inf")]}),
        [1, 0, 2],
        [float("inf"), score(1), float("-inf")],
    ),
    "parameters": (
        "ranked",
        asked(id="req-7", parameters={"timeout": 10_000_000, "priority": 1, "routing_key": "u"}),
        [1, 0, 2],
        [score(12), score(9), score(3)],
    ),
}


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("case", GOOD)
def test_both_doors_rank_alike(doors: RankDoors, case: str, raw: bool) -> None:
    model, document, positions, scores = GOOD[case]

    by_json, by_message = doors.both(document, PLANS[model], model, raw=raw)

    assert by_json == by_message
    assert isinstance(by_json, Ranking)
    assert by_json.positions == positions
    assert by_json.scores == scores
    ids = document["candidates"]["item_id"]
    assert by_json.ids == [ids[at] for at in positions]
    assert by_json.id == document.get("id", "")
    assert by_json.model == (model, "42", 17)


def test_candidates_without_a_score_come_last_alike(doors: RankDoors) -> None:
    document = asked(
        candidates={"item_id": [1, 2, 3], "price": [float("nan"), 1.0, float("nan")]},
        outputs=["cvr"],
    )

    by_json, by_message = doors.both(document, PLAN)

    for answer in (by_json, by_message):
        assert isinstance(answer, Ranking)
        assert answer.positions == [1, 0, 2]
        assert answer.scores[0] == score(1)
        assert np.isnan(answer.scores[1:]).all()
        assert np.isnan(answer.outputs["cvr"][1:]).all()


def test_heads_are_answered_beside_the_score(doors: RankDoors) -> None:
    by_json, by_message = doors.both(asked(outputs=["both", "cvr"], top_k=2), PLAN)

    assert by_json == by_message
    assert isinstance(by_json, Ranking)
    assert by_json.outputs == {"both": [20.0, 12.0, 20.0, 9.0], "cvr": [12.0, 9.0]}


@pytest.mark.parametrize("raw", [False, True])
def test_ids_alone_are_completed_alike(doors: RankDoors, raw: bool) -> None:
    document = asked(candidates={"item_id": [12, 13, 11]}, explain=True)

    by_json, by_message = doors.both(document, PLAN, "items", raw=raw)

    assert by_json == by_message
    assert isinstance(by_json, Ranking)
    assert by_json.ids == [12, 11, 13]
    assert by_json.scores == [score(12), score(9, tags=1), score(3, tags=2)]
    assert by_json.defaulted == ["tags"]
    assert by_json.missed == {}


@pytest.mark.parametrize("raw", [False, True])
def test_sequences_are_filled_alike(doors: RankDoors, raw: bool) -> None:
    document: dict[str, Any] = {
        "user": {"recent": [99, 11, 98, 12]},
        "candidates": {"item_id": [1, 2]},
        "explain": True,
    }
    by_json, by_message = doors.both(document, SEQUENCED, "sequences", raw=raw)

    assert by_json == by_message
    assert isinstance(by_json, Ranking)
    assert by_json.scores == [0.5 - 1.5 + 2.5 + 2, 0.5 - 1.5 + 2.5 + 1]
    assert by_json.missed == {"recent": (1, True, [])}

    document["user"]["prices"] = [9.0, 8.0, 7.0, 6.0]
    by_json, by_message = doors.both(document, SEQUENCED, "sequences", raw=raw)

    assert by_json == by_message
    assert isinstance(by_json, Ranking)
    assert by_json.scores == [8 + 7 + 6 + 2, 8 + 7 + 6 + 1]
    assert by_json.missed == {}


def test_sequences_without_a_value_for_unknown_items_are_refused_alike(doors: RankDoors) -> None:
    document = {"user": {"recent": [11, 98]}, "candidates": {"item_id": [1]}}
    by_json, by_message = doors.both(document, SEQUENCED, "strict_sequences")

    assert by_json == by_message
    assert isinstance(by_json, Refusal)
    assert by_json.text.endswith(
        "feature 'prices': expected a value for position 1 of 'recent', got null: the item table "
        "lacks this id"
    )


def test_ids_that_the_item_table_lacks_are_refused_or_reported_alike(doors: RankDoors) -> None:
    document = asked(candidates={"item_id": [12, 99, 11]}, explain=True)

    refused = doors.both(document, PLAN, "items")
    by_json, by_message = doors.both(document, PLAN, "reported_items")

    assert refused[0] == refused[1]
    assert isinstance(refused[0], Refusal)
    assert "feature 'price', candidate 1: " in refused[0].text
    assert by_json == by_message
    assert isinstance(by_json, Ranking)
    assert by_json.ids == [12, 11]
    assert list(by_json.bad) == [1]
    assert by_json.missed == {"item_id": (1, False, [1])}


def test_candidates_at_fault_are_reported_alike(doors: RankDoors) -> None:
    document = asked(candidates={**THREE, "tags": [[1], [1, 2, 3, 4], []]}, explain=True)

    by_json, by_message = doors.both(document, PLANS["reports"], "reports")

    assert by_json == by_message
    assert isinstance(by_json, Ranking)
    assert by_json.positions == [0, 2]
    assert list(by_json.bad) == [1]
    assert "expected at most 3 values, got 4" in by_json.bad[1]


def test_explanations_are_alike(doors: RankDoors) -> None:
    known, unknown = key_of(3), key_of(KEYS + 1)
    document = {
        "user": {"clicks": [known, unknown, unknown]},
        "candidates": {
            "x": [1.0, 2.0],
            "city": [known, known],
            "tags": [{"ids": [known], "weights": [2.0]}, {"ids": [unknown], "weights": [1.0]}],
            "pair": [[known, known], [known, known]],
        },
        "explain": True,
    }

    by_json, by_message = doors.both(document, LOOKUPS, "looked")

    assert by_json == by_message
    assert isinstance(by_json, Ranking)
    assert by_json.missed == {"clicks": (2, True, []), "tags": (1, False, [1])}
    assert by_json.fresh == (FRESHNESS.step, FRESHNESS.event_time)
    assert by_json.stages == ["decode", "lookup", "queue", "run"]


def test_defaults_are_explained_alike(doors: RankDoors) -> None:
    by_json, by_message = doors.both(asked(user={"country": "de"}, explain=True), PLAN)

    assert by_json == by_message
    assert isinstance(by_json, Ranking)
    assert by_json.defaulted == ["age", "tags"]
    assert by_json.missed == {}


BAD: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "unknown feature": (
        "ranked",
        asked(user={**USER, "contry": 1}),
        "INVALID_ARGUMENT",
        "'contry'",
    ),
    "user among candidates": (
        "ranked",
        asked(candidates={**THREE, "age": [1.0, 2.0, 3.0]}),
        "INVALID_ARGUMENT",
        "'age'",
    ),
    "candidate at the user": (
        "ranked",
        asked(user={**USER, "price": 1.0}, candidates={"item_id": [1]}),
        "INVALID_ARGUMENT",
        "'price'",
    ),
    "required feature missing": ("ranked", asked(user={}), "INVALID_ARGUMENT", "'country'"),
    "ids missing": (
        "ranked",
        asked(candidates={"price": [1.0]}),
        "INVALID_ARGUMENT",
        "'item_id'",
    ),
    "lengths differ": (
        "ranked",
        asked(candidates={"item_id": [1, 2, 3], "price": [1.0, 2.0]}),
        "INVALID_ARGUMENT",
        "'price'",
    ),
    "too many values": (
        "strict",
        asked(candidates={**THREE, "tags": [[], [], [1, 2, 3, 4]]}),
        "INVALID_ARGUMENT",
        "feature 'tags', candidate 2: expected at most 3 values, got 4",
    ),
    "a city without a row": (
        "looked",
        {
            "user": {"clicks": []},
            "candidates": {"city": [key_of(KEYS + 7)], "pair": [[key_of(1), key_of(2)]]},
        },
        "INVALID_ARGUMENT",
        "city",
    ),
    "unknown output": ("ranked", asked(outputs=["cvx"]), "INVALID_ARGUMENT", "'cvx'"),
    "too many candidates": (
        "ranked",
        asked(candidates={"item_id": list(range(51)), "price": [0.5] * 51}),
        "RESOURCE_EXHAUSTED",
        "50",
    ),
    "too many features": (
        "ranked",
        asked(user={f"f{number}": 1 for number in range(9)}),
        "RESOURCE_EXHAUSTED",
        "too many features: at most 8 are allowed",
    ),
    "too many outputs": (
        "ranked",
        asked(outputs=[f"o{number}" for number in range(9)]),
        "RESOURCE_EXHAUSTED",
        "too many outputs: at most 8 are allowed",
    ),
    "too long a string": (
        "ranked",
        asked(user={"age": 1.0, "country": "x" * 41}),
        "RESOURCE_EXHAUSTED",
        "40",
    ),
    "too long an id": ("ranked", asked(id="x" * 41), "RESOURCE_EXHAUSTED", "id: at most 40 bytes"),
    "no ranking": (
        "plain",
        asked(),
        "UNIMPLEMENTED",
        "model 'plain' cannot rank: its model.yaml has no ranking section",
    ),
    "no such model": ("absent", asked(), "NOT_FOUND", "model 'absent' is not known"),
}


@pytest.mark.parametrize("case", BAD)
def test_both_doors_refuse_alike(doors: RankDoors, case: str) -> None:
    model, document, code, text = BAD[case]

    by_json, by_message = doors.both(document, PLANS.get(model, PLAN), model)

    assert by_json == by_message
    assert isinstance(by_json, Refusal)
    assert by_json.code == code
    assert text in by_json.text


def test_ids_come_back_in_the_type_that_was_sent(doors: RankDoors) -> None:
    text = b'{"user":{"country":"de"},"candidates":{"item_id":[7, "12", "9007199254740993" ],'
    text += b'"price":[1,2,3]}}'

    response = doors.json(text)

    assert response.status == 200
    assert json.loads(response.body)["ids"] == ["9007199254740993", "12", 7]
