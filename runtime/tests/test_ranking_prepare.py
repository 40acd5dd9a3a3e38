"""From a ranking request to the graph's inputs: names, sides, faults, defaults, routing key."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.ranking.feature_program import COUNTS, ColumnLimits
from anabranch_runtime.ranking.plans import (
    FeaturePlan,
    HashPlan,
    RaggedPlan,
    RankingPlan,
    VocabularyPlan,
)
from anabranch_runtime.ranking.requests import RankRequest, WireForm
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_testing.ranking_plans import LIMITS, OUTPUTS, asked, ranking_plan
from anabranch_wire import ranking as messages
from anabranch_wire.errors import Corrupt, InvalidInput, TooLarge, Unavailable

FEATURES = (
    FeaturePlan(name="user_id", side="user", type="int64"),
    FeaturePlan(
        name="country",
        side="user",
        type="string",
        transform=VocabularyPlan(("de", "at"), None, 1, 0),
        default=("at",),
    ),
    FeaturePlan(name="item_id", side="candidate", type="int64"),
    FeaturePlan(name="price", side="candidate", type="float32"),
    FeaturePlan(
        name="tags",
        side="candidate",
        type="int64",
        ragged=RaggedPlan(3, "first", 3, 0),
        default=(),
    ),
)


_REPORTING: Final = RankingRules(ranking_plan(FEATURES, report_bad=True), OUTPUTS)


def rules_of(**fields: object) -> RankingRules:
    return RankingRules(ranking_plan(FEATURES, **fields), OUTPUTS)


@pytest.fixture(scope="module")
def rules() -> RankingRules:
    return rules_of()


def request_of(
    user: dict[str, object],
    candidates: dict[str, object],
    outputs: tuple[str, ...] = (),
    routing_key: str | int | None = None,
) -> RankRequest:
    """A request as JSON, value by value."""

    def columns(values: dict[str, object]) -> dict[str, bytes]:
        return {name: msgspec.json.encode(value) for name, value in values.items()}

    return asked(columns(user), columns(candidates), outputs=outputs, routing_key=routing_key)


def prepare(
    rules: RankingRules,
    user: dict[str, object] | None = None,
    candidates: dict[str, object] | None = None,
    outputs: tuple[str, ...] = (),
    routing_key: str | int | None = None,
) -> PreparedRanking:
    """Prepare a request; what is not given is in order."""
    user = {"user_id": 9001} if user is None else user
    candidates = {"item_id": [11, 12], "price": [1.5, 2.5]} if candidates is None else candidates
    return rules.prepare(request_of(user, candidates, outputs, routing_key), LIMITS)


def refusal(
    rules: RankingRules,
    user: dict[str, object] | None = None,
    candidates: dict[str, object] | None = None,
    outputs: tuple[str, ...] = (),
) -> str:
    with pytest.raises(InvalidInput) as caught:
        prepare(rules, user, candidates, outputs)
    return caught.value.message


def test_inputs_are_made_of_both_sides(rules: RankingRules) -> None:
    made = prepare(rules, {"country": "de", "user_id": 7})

    assert made.rows == 2
    assert made.arrays["item_id"].tolist() == [11, 12]
    assert made.arrays["price"].tolist() == [1.5, 2.5]
    assert made.arrays["user_id"].tolist() == [7]
    assert made.arrays["country"].tolist() == [1]
    assert made.arrays["tags"].tolist() == [[0, 0, 0]] * 2
    assert made.defaulted == ("tags",)
    assert made.heads == ("ctr",)
    assert made.bad == {}
    assert made.counts[:, COUNTS.index("defaulted")].tolist() == [0, 0, 0, 0, 2]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_user_that_the_graph_wants_for_each_row_is_repeated(rows: int) -> None:
    plan = ranking_plan(FEATURES)
    tensors = tuple(msgspec.structs.replace(fill, once=False) for fill in plan.tensors)
    rules = RankingRules(msgspec.structs.replace(plan, tensors=tensors), OUTPUTS)

    made = prepare(rules, None, {"item_id": list(range(rows)), "price": [1.0] * rows})

    assert made.arrays["user_id"].tolist() == [9001] * rows
    assert made.arrays["country"].tolist() == [2] * rows
    assert made.arrays["item_id"].tolist() == list(range(rows))


def test_what_a_user_amounts_to_is_limited() -> None:
    affinity = FeaturePlan(name="affinity", side="user", type="float32", shape=(8,))
    plan = ranking_plan([affinity, FEATURES[2]])
    tensors = tuple(msgspec.structs.replace(fill, once=False) for fill in plan.tensors)
    rules = RankingRules(msgspec.structs.replace(plan, tensors=tensors), OUTPUTS)
    request = request_of({"affinity": [0.5] * 8}, {"item_id": [1, 2, 3]})

    made = rules.prepare(request, ColumnLimits(10, 24, 100))
    assert made.arrays["affinity"].shape == (3, 8)
    with pytest.raises(TooLarge, match="input 'affinity': 8 values of the user for each of 3"):
        rules.prepare(request, ColumnLimits(10, 23, 100))


def test_null_and_left_out_are_the_same(rules: RankingRules) -> None:
    left_out = prepare(rules)
    null = prepare(rules, {"user_id": 9001, "country": None})

    assert left_out.defaulted == null.defaulted == ("country", "tags")
    assert left_out.arrays["country"].tolist() == null.arrays["country"].tolist() == [2]


@pytest.mark.parametrize(
    ("user", "candidates", "message"),
    [
        ({"user_idd": 1}, {}, "feature 'user_idd': no such feature; did you mean 'user_id'?"),
        (
            {"zzz": 1},
            {},
            "feature 'zzz': no such feature; expected 'user_id', 'country', 'item_id', 'price', "
            "'tags'",
        ),
        ({"price": 1}, {}, "feature 'price': expected it in candidates, found it in user"),
        ({}, {"country": ["de"]}, "feature 'country': expected it in user, found it in candidates"),
        ({"user_id": 1}, {"price": [1]}, "feature 'item_id': expected the ids of the candidates"),
        # Of several faults the same one is named, whatever came first.
        ({"b": 1, "price": 1, "a": 1}, {"c": 1}, "feature 'a': no such feature"),
        ({"a": 1, "b": 1, "price": 1}, {"c": 1}, "feature 'a': no such feature"),
        ({"tags": 1, "price": 1}, {}, "feature 'price': expected it in candidates"),
    ],
)
def test_names_and_sides_are_checked(
    rules: RankingRules, user: dict[str, object], candidates: dict[str, object], message: str
) -> None:
    assert refusal(rules, user, candidates).startswith(message)


def test_a_callers_long_name_is_cut(rules: RankingRules) -> None:
    assert len(refusal(rules, {"x" * 10_000: 1})) < 400


def test_a_required_feature_is_missed_by_name(rules: RankingRules) -> None:
    assert refusal(rules, {}).startswith("feature 'user_id': expected ")
    assert refusal(rules, None, {"item_id": [1]}).startswith("feature 'price': expected ")


def test_faults_name_feature_and_candidate(rules: RankingRules) -> None:
    message = refusal(rules, None, {"item_id": [1, 2], "price": [1, "12"]})

    assert message == "feature 'price', candidate 1: expected a number, got \"12\""


def test_faults_of_users_name_no_candidate(rules: RankingRules) -> None:
    assert refusal(rules, {"user_id": 1, "country": 5}).startswith("feature 'country': expected ")


def test_the_first_fault_is_that_of_the_first_feature(rules: RankingRules) -> None:
    message = refusal(rules, None, {"tags": ["x", []], "price": [1.0, "late"], "item_id": [1, 2]})

    assert message.startswith("feature 'price', candidate 1: ")


def test_columns_of_other_lengths_are_refused(rules: RankingRules) -> None:
    message = refusal(rules, None, {"item_id": [1, 2, 3], "price": [1.0, 2.0]})

    assert message.startswith("feature 'price': expected 3 ")


def test_bad_candidates_are_reported_and_the_rest_goes_on() -> None:
    rules = rules_of(report_bad=True)

    made = prepare(rules, None, {"item_id": [1, "x", 3], "price": ["a", "b", 2.0]})

    assert list(made.bad) == [0, 1]
    assert made.bad[0] == "feature 'price', candidate 0: expected a number, got \"a\""
    assert made.bad[1].startswith("feature 'item_id', candidate 1: expected ")
    assert made.rows == 3
    ranked = rules.finish(made, {"ctr": np.array([0.1, 0.2, 0.3], np.float32)})
    assert ranked.positions.tolist() == [2]
    assert ranked.bad == made.bad


@pytest.mark.parametrize(
    ("user", "candidates"),
    [
        ({"user_id": "x"}, {"item_id": [1], "price": [1.0]}),
        ({"user_id": 1}, {"item_id": [1], "price": 1.0}),
        ({"user_id": 1}, {"item_id": [1], "price": [1.0, 2.0]}),
        ({"user_id": 1}, {"item_id": [1]}),
    ],
)
def test_other_faults_are_never_only_reported(
    user: dict[str, object], candidates: dict[str, object]
) -> None:
    assert refusal(rules_of(report_bad=True), user, candidates)


def test_no_candidates_are_no_fault(rules: RankingRules) -> None:
    made = prepare(rules, None, {"item_id": [], "price": []})

    assert made.rows == 0
    assert made.arrays["item_id"].shape == (0,)
    assert made.arrays["tags"].shape == (0, 3)
    assert made.defaulted == ("country",)
    assert rules.finish(made, {}).positions.tolist() == []


def test_heads_come_once_and_those_of_the_score_first(rules: RankingRules) -> None:
    assert prepare(rules, outputs=("emb", "ctr", "cvr", "emb")).heads == ("ctr", "emb", "cvr")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("ctrr", "output 'ctrr': no such output; did you mean 'ctr'?"),
        ("zzzz", "output 'zzzz': no such output; expected 'ctr', 'cvr', 'emb', 'text'"),
        ("text", "output 'text': expected an output of numbers, got strings"),
    ],
)
def test_heads_that_cannot_be_answered_are_refused(
    rules: RankingRules, head: str, message: str
) -> None:
    assert refusal(rules, outputs=(head,)) == message


def test_limits_of_columns_count(rules: RankingRules) -> None:
    few = ColumnLimits(max_rows=2, max_values=100, max_string_bytes=100)
    request = request_of({"user_id": 1}, {"item_id": [1, 2, 3], "price": [1, 2, 3]})

    with pytest.raises(TooLarge, match="item_id"):
        rules.prepare(request, few)


@pytest.mark.parametrize(
    ("feature", "value", "own", "key"),
    [
        ("user_id", 9001, None, 9001),
        ("user_id", "9001", None, 9001),
        ("user_id", 9001, "mine", "mine"),
        ("user_id", 9001, 0, 0),
        ("country", "dé", None, "dé"),
        ("country", "", None, ""),
        ("country", None, None, None),
    ],
)
def test_a_feature_of_the_user_is_the_routing_key(
    feature: str, value: object, own: str | int | None, key: str | int | None
) -> None:
    rules = rules_of(routing_key=feature)

    made = prepare(rules, {"user_id": 1, feature: value}, routing_key=own)

    assert made.routing_key == key


def test_a_user_left_out_routes_nowhere() -> None:
    assert prepare(rules_of(routing_key="country")).routing_key is None


@pytest.mark.parametrize(
    "feature",
    [
        FeaturePlan(name="age", side="user", type="float32"),
        FeaturePlan(name="age", side="user", type="int64", ragged=RaggedPlan(3, "first", 3, 0)),
    ],
)
def test_what_is_no_key_is_no_routing_key(feature: FeaturePlan) -> None:
    plan = ranking_plan([*FEATURES, feature], routing_key="age")

    with pytest.raises(ValueError, match="routing key 'age'"):
        RankingRules(plan, OUTPUTS)


def test_a_message_is_read_like_json(rules: RankingRules) -> None:
    columns = {
        "item_id": messages.Column(int64s=[11, 12]),
        "price": messages.Column(floats=[1.5, 2.5]),
    }
    request = RankRequest(
        form="message",
        user={"user_id": messages.Column(int64s=[9001]).SerializeToString()},
        candidates={name: column.SerializeToString() for name, column in columns.items()},
    )

    made, same = rules.prepare(request, LIMITS), prepare(rules)

    assert made.rows == same.rows
    assert made.defaulted == same.defaulted
    for name, array in same.arrays.items():
        np.testing.assert_array_equal(made.arrays[name], array)


def test_a_damaged_vocabulary_is_told(tmp_path: Path) -> None:
    def plan(file: Path) -> RankingPlan:
        feature = FeaturePlan(
            name="who",
            side="user",
            type="string",
            transform=VocabularyPlan((), str(file), 0, None),
        )
        return ranking_plan([feature, FEATURES[2]])

    (tmp_path / "twice.txt").write_bytes(b"a\na\n")

    with pytest.raises(Corrupt):
        RankingRules(plan(tmp_path / "twice.txt"), OUTPUTS)
    with pytest.raises(Unavailable):
        RankingRules(plan(tmp_path / "none.txt"), OUTPUTS)


def test_hashed_ids_are_echoed_by_position_alone() -> None:
    features = [
        FeaturePlan(name="sku", side="candidate", type="string", transform=HashPlan("xxh64", 1000))
    ]
    rules = RankingRules(ranking_plan(features), OUTPUTS)

    made = rules.prepare(request_of({}, {"sku": ["a", "b"]}), LIMITS)
    ranked = rules.finish(made, {"ctr": np.array([0.1, 0.9], np.float32)})

    assert ranked.positions.tolist() == [1, 0]
    assert 0 <= int(made.arrays["sku"].max()) < 1000


@given(
    form=st.sampled_from(["json", "message"]),
    user=st.dictionaries(st.sampled_from(["user_id", "country", "x"]), st.binary(max_size=20)),
    candidates=st.dictionaries(
        st.sampled_from(["item_id", "price", "tags"]), st.binary(max_size=20)
    ),
)
def test_any_bytes_are_refused_by_name_or_ranked(
    form: WireForm, user: dict[str, bytes], candidates: dict[str, bytes]
) -> None:
    request = RankRequest(form=form, user=user, candidates=candidates)

    try:
        made = _REPORTING.prepare(request, LIMITS)
    except InvalidInput as refused:
        message = refused.message
        assert message.startswith("feature '")
    else:
        assert {len(made.arrays[name]) for name in ("item_id", "price", "tags")} == {made.rows}


def test_threads_prepare_and_finish_at_once(rules: RankingRules) -> None:
    def rank(seed: int) -> tuple[list[int], list[float], tuple[str, ...]]:
        rng = np.random.default_rng(seed)
        rows = int(rng.integers(1, 300))
        ids = rng.integers(0, 1000, rows)
        candidates = {"item_id": ids.tolist(), "price": rng.random(rows).tolist()}
        made = prepare(rules, {"user_id": seed}, candidates)
        prices = made.arrays["price"]
        ranked = rules.finish(made, {"ctr": prices})
        assert made.arrays["item_id"].tolist() == ids.tolist()
        assert made.arrays["user_id"].tolist() == [seed]
        return ranked.positions.tolist(), ranked.scores.tolist(), made.defaulted

    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(rank, range(200)))

    assert at_once == [rank(seed) for seed in range(200)]
