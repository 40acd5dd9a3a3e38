"""Random ranking requests, against a plain reading of the contract."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_runtime.ranking.plans import FeaturePlan
from anabranch_runtime.ranking.requests import Missed
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_testing.item_files import write_items
from anabranch_testing.plain_requests import PlainRefusal, PlainRows, plain_rows
from anabranch_testing.ranking_plans import LIMITS, OUTPUTS, asked, ranking_plan
from anabranch_wire.errors import InvalidInput

FEATURES = (
    FeaturePlan(name="price", side="candidate", type="float32"),
    FeaturePlan(name="who", side="user", type="int64"),
    FeaturePlan(name="slot", side="candidate", type="int64", default=(3,)),
    FeaturePlan(name="item", side="candidate", type="int64"),
    FeaturePlan(name="age", side="user", type="float32", default=(30.0,)),
    FeaturePlan(name="brand", side="candidate", type="int64", default=(7,)),
    FeaturePlan(name="stock", side="candidate", type="int64"),
)

ITEMS: dict[int, dict[str, object]] = {
    0: {"price": 0.5, "brand": 5, "stock": 5},  # what is no id reads as 0
    1: {"price": 1.5, "brand": 1, "stock": 10},
    2: {"price": None, "brand": None, "stock": 20},
    3: {"price": 3.5, "brand": 3, "stock": None},
}

NUMBERS = st.sampled_from([1, 2, 3, 1, 2, 3, 9, None, "x"])
USERS = ("who", "age", "price", "whoo")
CANDIDATES = ("price", "slot", "item", "brand", "stock", "who", "itme")


def plan_of(folder: Path, *, has_items: bool, id_default: bool, report: bool) -> RankingRules:
    features = [
        msgspec.structs.replace(feature, default=(2,) if id_default else None)
        if feature.name == "item"
        else feature
        for feature in FEATURES
    ]
    plan = ranking_plan(features, id="item", report_bad=report)
    if has_items:
        columns = {name: [row[name] for row in ITEMS.values()] for name in ITEMS[1]}
        items = write_items(folder, list(ITEMS), columns, features)
        plan = msgspec.structs.replace(plan, item_table=items)
    return RankingRules(plan, OUTPUTS)


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[RankingRules, bool]]:
    """All kinds of plans, and whether each has items."""
    return [
        (
            plan_of(
                tmp_path_factory.mktemp("items"),
                has_items=has_items,
                id_default=id_default,
                report=report,
            ),
            has_items,
        )
        for has_items in (True, False)
        for id_default in (True, False)
        for report in (True, False)
    ]


@st.composite
def requests(draw: st.DrawFn) -> tuple[dict[str, object], dict[str, object]]:
    """What a user and candidates send, mostly in order."""
    of_users = st.sets(st.sampled_from(USERS[:2])) | st.sets(st.sampled_from(USERS))
    user: dict[str, object] = {name: draw(NUMBERS) for name in sorted(draw(of_users)) or ["who"]}
    if draw(st.integers(0, 5)):
        user["who"] = 5
    rows = draw(st.integers(0, 4))
    lists = st.lists(NUMBERS, min_size=rows, max_size=rows)
    columns = lists | lists | lists | st.lists(NUMBERS, max_size=5) | st.just(5)
    asked_for = st.sets(st.sampled_from(CANDIDATES[:5])) | st.sets(st.sampled_from(CANDIDATES))
    names = draw(st.permutations(sorted(draw(asked_for))))
    candidates: dict[str, object] = {name: draw(columns) for name in names}
    if draw(st.integers(0, 5)):
        candidates["item"] = draw(lists)
    return user, candidates


@settings(max_examples=600)  # many ways to be wrong; the first one compiles
@given(request=requests(), which=st.integers(0, 7))
def test_a_request_comes_to_what_the_contract_says(
    versions: list[tuple[RankingRules, bool]],
    request: tuple[dict[str, object], dict[str, object]],
    which: int,
) -> None:
    rules, has_items = versions[which]
    user, candidates = request
    items = ITEMS if has_items else {}
    expected: PlainRows | PlainRefusal
    try:
        expected = plain_rows(
            rules.plan.features, "item", items, user, candidates, report=rules.plan.report_bad
        )
    except PlainRefusal as refusal:
        expected = refusal

    columns = [{n: msgspec.json.encode(v) for n, v in side.items()} for side in (user, candidates)]
    if isinstance(expected, PlainRefusal):
        with pytest.raises(InvalidInput) as caught:
            rules.prepare(asked(*columns), LIMITS)
        assert caught.value.message.startswith(str(expected))
        return
    made = rules.prepare(asked(*columns), LIMITS)

    assert {row: text[: len(expected.bad[row])] for row, text in made.bad.items()} == expected.bad
    good = [row for row in range(made.rows) if row not in expected.bad]
    for feature in rules.plan.features:
        found, values = made.arrays[feature.name], expected.values[feature.name]
        if feature.side == "user":
            np.testing.assert_array_equal(found, values)
        else:
            np.testing.assert_array_equal(found[good], np.array(values)[good])
    assert sorted(made.defaulted) == sorted(expected.defaulted)
    missed = tuple(expected.missed)
    item = Missed(len(missed), user=False, candidates=missed)
    assert made.missed == ({"item": item} if missed else {})
