"""Candidates sent as ids alone, completed from a real item table."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from anabranch_runtime.ranking.plans import FeaturePlan, RaggedPlan, VocabularyPlan
from anabranch_runtime.ranking.requests import Missed
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_testing.item_files import write_items
from anabranch_testing.ranking_plans import LIMITS, OUTPUTS, asked, ranking_plan
from anabranch_wire.errors import InvalidInput

FEATURES = (
    FeaturePlan(name="price", side="candidate", type="float32"),
    FeaturePlan(name="item_id", side="candidate", type="int64"),
    FeaturePlan(
        name="tags", side="candidate", type="int64", default=(7,),
        ragged=RaggedPlan(2, "first", 2, 0),
    ),
    FeaturePlan(
        name="brand", side="candidate", type="string", default=("none",),
        transform=VocabularyPlan(("acme", "none"), None, 1, 0),
    ),
)  # fmt: skip

IDS = [11, 12, 13]
COLUMNS: Mapping[str, Sequence[object]] = {
    "price": [1.5, 2.5, None],
    "tags": [[1], [1, 2, 3], None],
    "brand": ["acme", None, "other"],
}


def rules_of(folder: Path, features: Sequence[FeaturePlan], **fields: object) -> RankingRules:
    items = write_items(folder, IDS, COLUMNS, features)
    plan = ranking_plan(features, id="item_id", item_table=items, **fields)
    return RankingRules(plan, OUTPUTS)


def prepare(rules: RankingRules, **candidates: object) -> PreparedRanking:
    columns = {name: msgspec.json.encode(values) for name, values in candidates.items()}
    return rules.prepare(asked({}, columns), LIMITS)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> RankingRules:
    return rules_of(tmp_path_factory.mktemp("items"), FEATURES)


def test_ids_alone_are_completed(rules: RankingRules) -> None:
    made = prepare(rules, item_id=[12, 11, 12])

    assert made.rows == 3
    assert made.arrays["price"].tolist() == [2.5, 1.5, 2.5]
    assert made.arrays["tags"].tolist() == [[1, 2], [1, 0], [1, 2]]
    assert made.arrays["brand"].tolist() == [2, 1, 2]
    assert made.missed == {}
    assert made.defaulted == ("brand",)


def test_what_callers_send_wins_column_by_column(rules: RankingRules) -> None:
    made = prepare(rules, item_id=[11, 12], price=[9.0, 8.0])

    assert made.arrays["price"].tolist() == [9.0, 8.0]
    assert made.arrays["tags"].tolist() == [[1, 0], [1, 2]]


def test_an_id_that_the_table_lacks_gets_defaults_and_is_missed(rules: RankingRules) -> None:
    made = prepare(rules, item_id=[99, 11, 98], price=[1.0, 2.0, 3.0])

    assert made.missed == {"item_id": Missed(2, user=False, candidates=(0, 2))}
    assert made.arrays["tags"].tolist() == [[7, 0], [1, 0], [7, 0]]
    assert made.arrays["brand"].tolist() == [2, 1, 2]
    assert made.defaulted == ("tags", "brand")


def test_nobody_asks_the_table_for_what_was_sent(rules: RankingRules) -> None:
    made = prepare(rules, item_id=[99], price=[1.0], tags=[[]], brand=["acme"])

    assert made.missed == {}


def test_an_id_that_the_table_lacks_is_refused_where_a_feature_is_required(
    rules: RankingRules,
) -> None:
    with pytest.raises(InvalidInput) as caught:
        prepare(rules, item_id=[11, 99])

    assert caught.value.message == (
        "feature 'price', candidate 1: expected a value, got null: the item table lacks this id"
    )


def test_an_item_without_a_required_value_is_refused(rules: RankingRules) -> None:
    with pytest.raises(InvalidInput) as caught:
        prepare(rules, item_id=[11, 13])

    assert caught.value.message == "feature 'price', candidate 1: expected a value, got null"


def test_bad_ids_are_blamed_and_not_what_they_lead_to(rules: RankingRules) -> None:
    with pytest.raises(InvalidInput, match="feature 'item_id', candidate 0: "):
        prepare(rules, item_id=["eleven", 11])
    with pytest.raises(InvalidInput, match="feature 'item_id': "):
        prepare(rules, item_id="eleven")
    with pytest.raises(InvalidInput, match="feature 'item_id', candidate 1: expected a value"):
        prepare(rules, item_id=[11, None])


def test_bad_ids_are_reported(tmp_path: Path) -> None:
    made = prepare(rules_of(tmp_path, FEATURES, report_bad=True), item_id=["eleven", 11, 99])

    assert list(made.bad) == [0, 2]
    assert made.bad[0].startswith("feature 'item_id', candidate 0: ")
    assert made.bad[2].startswith("feature 'price', candidate 2: ")
    assert made.missed == {"item_id": Missed(1, user=False, candidates=(2,))}


def test_a_default_id_finds_no_item(tmp_path: Path) -> None:
    price, item_id, *rest = FEATURES
    item_id = msgspec.structs.replace(item_id, default=(11,))
    rules = rules_of(tmp_path, [price, item_id, *rest], report_bad=True)

    made = prepare(rules, item_id=[None, 11])

    assert made.arrays["item_id"].tolist() == [11, 11]
    assert made.bad == {0: "feature 'price', candidate 0: expected a value, got null"}
    assert made.missed == {}


def test_no_candidates_are_completed(rules: RankingRules) -> None:
    made = prepare(rules, item_id=[])

    assert made.rows == 0
    assert made.arrays["price"].shape == (0,)
    assert made.arrays["tags"].shape == (0, 2)


def test_ids_may_be_strings(tmp_path: Path) -> None:
    features = [
        FeaturePlan(
            name="sku", side="candidate", type="string",
            transform=VocabularyPlan(("a", "b"), None, 0, 9),
        ),
        FeaturePlan(name="price", side="candidate", type="float32", default=(0.5,)),
    ]  # fmt: skip
    items = write_items(tmp_path, ["a", "b"], {"price": [1.0, 2.0]}, features)
    rules = RankingRules(ranking_plan(features, item_table=items), OUTPUTS)

    made = prepare(rules, sku=["b", "é", "a"])

    assert made.arrays["price"].tolist() == [2.0, 0.5, 1.0]
    assert made.arrays["sku"].tolist() == [1, 9, 0]
    assert made.missed == {"sku": Missed(1, user=False, candidates=(1,))}


def test_a_table_that_fills_the_id_is_refused(tmp_path: Path) -> None:
    items = write_items(tmp_path, IDS, {"item_id": IDS}, FEATURES)
    plan = ranking_plan(FEATURES, id="item_id", item_table=items)

    with pytest.raises(ValueError, match="the item table cannot fill feature 'item_id'"):
        RankingRules(plan, OUTPUTS)


def test_many_candidates_are_completed_in_their_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    ids = rng.permutation(5000)
    prices = rng.random(5000, np.float32)
    items = write_items(tmp_path, ids.tolist(), {"price": prices.tolist()}, FEATURES)
    plan = ranking_plan(FEATURES[:2], id="item_id", item_table=items)
    rules = RankingRules(plan, OUTPUTS)
    wanted = rng.integers(0, 5000, 1000)

    made = prepare(rules, item_id=wanted.tolist())

    by_id = dict(zip(ids.tolist(), prices.tolist(), strict=True))
    assert made.arrays["price"].tolist() == [by_id[one] for one in wanted.tolist()]
