"""Side information of a user's sequences, from a real item table."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_runtime.ranking.missing_keys import all_missed
from anabranch_runtime.ranking.plans import (
    FeaturePlan,
    RaggedPlan,
    SequencePlan,
    VocabularyPlan,
)
from anabranch_runtime.ranking.requests import Missed
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_testing.item_files import write_items
from anabranch_testing.ranking_plans import LIMITS, OUTPUTS, asked, ranking_plan
from anabranch_wire.errors import InvalidInput

Keep = Literal["first", "last", "error"]
LENGTH = 3
WORDS = ("acme", "none", "", "größe")

IDS = [11, 12, 13, 14]
COLUMNS: Mapping[str, Sequence[object]] = {
    "category": [1, 2, None, 4],
    "prices": [0.5, 1.5, 2.5, None],
    "brands": ["acme", "", None, "größe"],
}
BY_ID = {one: {name: COLUMNS[name][at] for name in COLUMNS} for at, one in enumerate(IDS)}


def features_of(
    keep: Keep = "last", defaults: tuple[int, ...] | None = None
) -> tuple[FeaturePlan, ...]:
    ragged = RaggedPlan(LENGTH, keep, LENGTH, 0)

    def sequence(name: str, kind: str, **more: object) -> FeaturePlan:
        return FeaturePlan(name=name, side="user", type=kind, ragged=ragged, **more)  # type: ignore[arg-type]  # of many types

    default = None if defaults is None else tuple(one * 100 for one in defaults)
    return (
        sequence("categories", "int64", default=default),
        sequence("recent", "int64", default=defaults),
        sequence("prices", "float32", default=default),
        sequence(
            "brands",
            "string",
            transform=VocabularyPlan(WORDS, None, 1, None),
            default=None if defaults is None else ("acme",) * len(defaults),
        ),
        FeaturePlan(name="item", side="candidate", type="int64", default=(11,)),
        FeaturePlan(name="category", side="candidate", type="int64", default=(9,)),
    )


MISSING: Mapping[str, int | float | str] = {"categories": 7, "prices": 8.5, "brands": "none"}


def rules_of(
    folder: Path,
    keep: Keep = "last",
    defaults: tuple[int, ...] | None = None,
    missing: Mapping[str, int | float | str] = MISSING,
) -> RankingRules:
    sequences = [
        SequencePlan("categories", "recent", "category", missing.get("categories")),
        SequencePlan("prices", "recent", "prices", missing.get("prices")),
        SequencePlan("brands", "recent", "brands", missing.get("brands")),
    ]
    features = features_of(keep, defaults)
    items = write_items(folder, IDS, COLUMNS, features, sequences)
    return RankingRules(ranking_plan(features, id="item", item_table=items), OUTPUTS)


def prepare(rules: RankingRules, **user: object) -> PreparedRanking:
    columns = {name: msgspec.json.encode(values) for name, values in user.items()}
    return rules.prepare(asked(columns, {"item": b"[12]"}), LIMITS)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> RankingRules:
    return rules_of(tmp_path_factory.mktemp("sequences"))


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> RankingRules:
    return rules_of(tmp_path_factory.mktemp("strict"), missing={})


def test_a_sequence_has_a_value_for_each_id(rules: RankingRules) -> None:
    made = prepare(rules, recent=[12, 11])

    assert made.arrays["recent"].tolist() == [[12, 11, 0]]
    assert made.arrays["categories"].tolist() == [[2, 1, 0]]
    assert made.arrays["prices"].tolist() == [[1.5, 0.5, 0]]
    assert made.arrays["brands"].tolist() == [[3, 1, 0]]
    assert made.arrays["category"].tolist() == [2]
    assert (made.missed, made.defaulted) == ({}, ())


def test_an_unknown_item_and_a_null_take_what_is_stated(rules: RankingRules) -> None:
    made = prepare(rules, recent=[99, 13, 14])

    assert made.arrays["categories"].tolist() == [[7, 7, 4]]
    assert made.arrays["prices"].tolist() == [[8.5, 2.5, 8.5]]
    assert made.arrays["brands"].tolist() == [[2, 2, 4]]
    assert made.missed == {"recent": Missed(1, user=True)}
    assert all_missed(rules.plan, made, None) == made.missed


def test_sequences_are_cut_alike_and_what_is_cut_off_is_not_missed(rules: RankingRules) -> None:
    made = prepare(rules, recent=[99, 11, 12, 98])

    assert made.arrays["recent"].tolist() == [[11, 12, 98]]
    assert made.arrays["categories"].tolist() == [[1, 2, 7]]
    assert made.missed == {"recent": Missed(1, user=True)}
    assert made.counts[0].tolist() == made.counts[1].tolist()  # truncated among them


def test_what_callers_send_wins_feature_by_feature(rules: RankingRules) -> None:
    made = prepare(rules, recent=[11, 99], categories=[5, 6], prices=[1, 2], brands=["acme"] * 2)

    assert made.arrays["categories"].tolist() == [[5, 6, 0]]
    assert made.missed == {}  # nobody asked the table

    made = prepare(rules, recent=[11, 99], categories=[5, 6])

    assert made.arrays["categories"].tolist() == [[5, 6, 0]]
    assert made.arrays["prices"].tolist() == [[0.5, 8.5, 0]]
    assert made.missed == {"recent": Missed(1, user=True)}


@pytest.mark.parametrize(
    ("recent", "text"),
    [
        (
            [11, 99],
            "feature 'categories': expected a value for position 1 of 'recent', got null: the item "
            "table lacks this id",
        ),
        (
            [11, 11, 13],
            "feature 'categories': expected a value for position 2 of 'recent', got null",
        ),
        ([14], "feature 'prices': expected a value for position 0 of 'recent', got null"),
        (
            [99, 99, 14, 11, 11],
            "feature 'prices': expected a value for position 2 of 'recent', got null",
        ),
    ],
)
def test_without_a_value_for_it_an_unknown_item_is_a_fault(
    strict: RankingRules, recent: list[int], text: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        prepare(strict, recent=recent)
    assert caught.value.message == text


def test_unknown_items_that_are_cut_off_are_no_fault(strict: RankingRules) -> None:
    made = prepare(strict, recent=[13, 14, 99, 11, 12, 11])

    assert made.arrays["brands"].tolist() == [[1, 3, 1]]


@pytest.mark.parametrize("recent", [["x"], 5, [1, None], "x"])
def test_ids_are_blamed_and_not_what_they_lead_to(rules: RankingRules, recent: object) -> None:
    with pytest.raises(InvalidInput, match=r"^feature 'recent': "):
        prepare(rules, recent=recent)


def test_too_many_ids_are_blamed(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^feature 'recent': expected at most 3 values, got 4$"):
        prepare(rules_of(tmp_path, "error", missing={}), recent=[11, 99, 11, 11])


def test_ids_that_were_left_out_are_blamed(rules: RankingRules) -> None:
    with pytest.raises(InvalidInput, match=r"^feature 'recent': "):
        prepare(rules)
    with pytest.raises(InvalidInput, match=r"^feature 'recent': expected a value, got null"):
        prepare(rules, recent=None)


@pytest.mark.parametrize("user", [{}, {"recent": None}])
def test_defaults_stand_in_for_all_sequences(tmp_path: Path, user: dict[str, object]) -> None:
    made = prepare(rules_of(tmp_path, defaults=(3, 4)), **user)

    assert made.arrays["recent"].tolist() == [[3, 4, 0]]
    assert made.arrays["categories"].tolist() == [[300, 400, 0]]
    assert made.arrays["brands"].tolist() == [[1, 1, 0]]
    assert made.defaulted == ("categories", "recent", "prices", "brands")
    assert made.missed == {}


def test_an_empty_sequence_stays_empty(rules: RankingRules) -> None:
    made = prepare(rules, recent=[])

    assert made.arrays["categories"].tolist() == [[0, 0, 0]]
    assert made.arrays["brands"].tolist() == [[0, 0, 0]]
    assert (made.missed, made.defaulted) == ({}, ())


def test_candidates_and_sequences_miss_side_by_side(rules: RankingRules) -> None:
    made = rules.prepare(asked({"recent": b"[99,98]"}, {"item": b"[97,11]"}), LIMITS)

    assert made.missed == {
        "recent": Missed(2, user=True),
        "item": Missed(1, user=False, candidates=(0,)),
    }


def test_ids_that_tables_lack_as_well_are_not_added_up(
    rules: RankingRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepare(rules, recent=[99, 98, 11])
    looked = {"recent": Missed(3, user=True)}
    monkeypatch.setattr(
        "anabranch_runtime.ranking.missing_keys.missing_keys", lambda *given: looked
    )

    assert all_missed(rules.plan, made, None) == looked


def test_ids_may_be_strings(tmp_path: Path) -> None:
    ragged = RaggedPlan(LENGTH, "first", LENGTH, 0)
    features = [
        FeaturePlan(name="recent", side="user", type="string", ragged=ragged,
                    transform=VocabularyPlan(("a", "é"), None, 1, 0)),
        FeaturePlan(name="categories", side="user", type="int64", ragged=ragged),
        FeaturePlan(name="sku", side="candidate", type="string",
                    transform=VocabularyPlan(("a", "é"), None, 1, 0)),
    ]  # fmt: skip
    sequences = [SequencePlan("categories", "recent", "categories", 7)]
    items = write_items(tmp_path, ["a", "é"], {"categories": [1, 2]}, features, sequences)
    rules = RankingRules(ranking_plan(features, item_table=items), OUTPUTS)

    made = rules.prepare(
        asked({"recent": '["é", "", "a", "z"]'.encode()}, {"sku": b'["a"]'}), LIMITS
    )

    assert made.arrays["categories"].tolist() == [[2, 7, 1]]
    assert made.missed == {"recent": Missed(1, user=True)}


@pytest.mark.parametrize(("feature", "ids"), [("item", "recent"), ("categories", "item")])
def test_only_sequences_of_users_are_filled(tmp_path: Path, feature: str, ids: str) -> None:
    sequences = [SequencePlan(feature, ids, "category")]
    items = write_items(tmp_path, IDS, {"category": [1, 2, 3, 4]}, features_of(), sequences)

    with pytest.raises(ValueError, match="cannot fill a sequence by feature 'item'"):
        RankingRules(ranking_plan(features_of(), id="item", item_table=items), OUTPUTS)


def plain(name: str, column: str, ids: Sequence[int], keep: Keep) -> list[object]:
    """One value after another, as the contract says it."""
    values = []
    for one in ids:
        value = BY_ID[one][column] if one in BY_ID else None
        values.append(MISSING[name] if value is None else value)
    cut = values[:LENGTH] if keep == "first" else values[-LENGTH:]
    return [WORDS.index(one) + 1 if isinstance(one, str) else one for one in cut]


@pytest.fixture(scope="module")
def by_keep(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Keep, RankingRules]:
    keeps: tuple[Keep, ...] = ("first", "last")
    return {keep: rules_of(tmp_path_factory.mktemp(keep), keep) for keep in keeps}


@settings(max_examples=200)  # the first one compiles
@given(
    ids=st.lists(st.sampled_from([*IDS, 0, -1, 99]), max_size=7),
    keep=st.sampled_from(["first", "last"]),
    sent=st.sets(st.sampled_from(["categories", "prices", "brands"])),
)
def test_sequences_come_to_what_the_contract_says(
    by_keep: Mapping[Keep, RankingRules], ids: list[int], keep: Keep, sent: set[str]
) -> None:
    own = {name: ["acme" if name == "brands" else 1] * len(ids) for name in sent}

    made = prepare(by_keep[keep], recent=ids, **own)

    for name, column in (("categories", "category"), ("prices", "prices"), ("brands", "brands")):
        expected = plain(name, column, ids, keep)
        if name in sent:
            expected = [1] * len(expected)
        found = made.arrays[name][0]
        np.testing.assert_array_equal(found, [*expected, *[0] * (LENGTH - len(expected))])
    kept = ids[:LENGTH] if keep == "first" else ids[-LENGTH:]
    lacking = sum(one not in BY_ID for one in kept)
    asks = lacking and len(sent) < 3
    assert made.missed == ({"recent": Missed(lacking, user=True)} if asks else {})
