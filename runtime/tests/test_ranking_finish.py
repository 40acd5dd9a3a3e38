"""From outputs of the graph to ranked candidates, against a plain reading of the contract."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_runtime.ranking.plans import CalibrationPlan, FeaturePlan, RankingPlan
from anabranch_runtime.ranking.requests import Ranked
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_testing.plain_ranking import plain_calibrated, plain_order, plain_score
from anabranch_testing.ranking_plans import LIMITS, OUTPUTS, asked, ranking_plan, scored_by
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

ITEM = FeaturePlan(name="item", side="candidate", type="int64")

_EDGES = st.sampled_from([0.0, -0.0, 1.0, 0.5, -2.0, math.nan, math.inf, -math.inf])
NUMBERS = st.one_of(_EDGES, st.floats(0, 1, width=32), st.floats(width=32))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40)

SCORES: tuple[dict[str, object], ...] = (
    {},
    scored_by("weighted_sum", {"ctr": 1.0, "cvr": 0.5}),
    scored_by("product_of_powers", {"ctr": 1.0, "cvr": 0.5}),
)

RULES = {
    (str(fields.get("formula", "head")), descending): RankingRules(
        ranking_plan(
            [ITEM],
            calibration={"cvr": CalibrationPlan(negative_sampling=0.2)},
            descending=descending,
            report_bad=True,
            **fields,
        ),
        OUTPUTS,
    )
    for fields in SCORES
    for descending in (True, False)
}


def prepared(
    rules: RankingRules,
    rows: int,
    bad: Mapping[int, str] | None = None,
    outputs: tuple[str, ...] = (),
    top_k: int = 0,
) -> PreparedRanking:
    """A request that was prepared, without the arrays that nobody asks for any more."""
    request = asked(candidates={"item": b"[]"}, outputs=outputs, top_k=top_k)
    heads = rules.prepare(request, LIMITS).heads
    counts = np.zeros((1, 5), np.int64)
    return PreparedRanking(request, rows, {}, heads, counts, bad=bad or {})


def arrays_of(rows: list[tuple[float, float]]) -> dict[str, NDArray[np.generic]]:
    columns = np.array(rows, np.float32).reshape(-1, 2)
    return {"ctr": columns[:, 0].copy(), "cvr": columns[:, 1:].copy()}


def ranked(
    rows: list[tuple[float, float]],
    bad: Mapping[int, str] | None = None,
    outputs: tuple[str, ...] = (),
    top_k: int = 0,
) -> Ranked:
    """Rank by `ctr` as it is."""
    rules = RULES["head", True]
    return rules.finish(prepared(rules, len(rows), bad, outputs, top_k), arrays_of(rows))


@given(
    rows=ROWS,
    which=st.sampled_from(sorted(RULES)),
    top_k=st.integers(0, 45),
    data=st.data(),
)
def test_it_is_what_the_contract_says(
    rows: list[tuple[float, float]], which: tuple[str, bool], top_k: int, data: st.DataObject
) -> None:
    rules, count = RULES[which], len(rows)
    bad = {row: "why" for row in data.draw(st.sets(st.integers(0, max(count - 1, 0)))) if count}

    arrays = arrays_of(rows)
    whole = rules.finish(prepared(rules, count, bad, outputs=("cvr", "ctr")), arrays)
    first = rules.finish(prepared(rules, count, bad, outputs=("cvr", "ctr"), top_k=top_k), arrays)

    good = [row for row in range(count) if row not in bad]
    calibration = rules.plan.calibration
    heads = [
        {
            name: plain_calibrated(calibration.get(name), value)
            for name, value in zip(("ctr", "cvr"), row, strict=True)
        }
        for row in np.array(rows, np.float32).reshape(-1, 2).tolist()
    ]
    # The order is that of the float32 scores that are answered, so ties are what a caller sees.
    positions = whole.positions.tolist()
    found = dict(zip(positions, whole.scores.tolist(), strict=True))
    order = plain_order([found[row] for row in good], descending=which[1])
    assert positions == [good[place] for place in order]
    with np.errstate(all="ignore"):
        scores = np.array([plain_score(rules.plan, heads[row]) for row in positions]).astype("f4")
        cvr = np.array([heads[row]["cvr"] for row in positions]).astype("f4")
    np.testing.assert_allclose(whole.scores, scores, rtol=1e-6)  # one rounding to float32
    np.testing.assert_allclose(whole.outputs["cvr"], cvr, rtol=1e-6)
    assert whole.nan_scores == first.nan_scores == int(np.isnan(scores).sum())
    assert whole.bad == first.bad == bad
    assert list(whole.outputs) == ["cvr", "ctr"]
    end = top_k or None
    assert first.positions.tolist() == positions[:end]
    np.testing.assert_array_equal(first.scores, whole.scores[:end])
    for name, array in whole.outputs.items():
        np.testing.assert_array_equal(first.outputs[name], array[:end])


def test_heads_are_answered_in_the_order_of_the_ranking() -> None:
    found = ranked([(0.1, 0.5), (0.9, 0.25), (0.5, 0.0)], outputs=("ctr",), top_k=2)

    assert found.positions.tolist() == [1, 2]
    assert found.positions.dtype == np.uint32
    assert found.scores.tolist() == pytest.approx([0.9, 0.5])
    assert found.scores.dtype == np.float32
    assert found.outputs["ctr"].tolist() == found.scores.tolist()


def test_what_is_asked_for_is_calibrated_like_the_score() -> None:
    found = ranked([(0.5, 0.5)], outputs=("cvr",))

    assert found.outputs["cvr"].tolist() == [pytest.approx(0.5 / (0.5 + 0.5 / 0.2))]


def test_vectors_are_answered_whole() -> None:
    rules = RULES["head", True]
    arrays = {
        **arrays_of([(0.1, 0), (0.9, 0)]),
        "emb": np.arange(6, dtype=np.float32).reshape(2, 3),
    }

    found = rules.finish(prepared(rules, 2, outputs=("emb",)), arrays)

    assert found.outputs["emb"].tolist() == [[3, 4, 5], [0, 1, 2]]


def test_scores_beyond_float32_are_infinite() -> None:
    rules = RULES["weighted_sum", True]
    arrays = {"ctr": np.array([1e300, 1.0]), "cvr": np.array([0.0, 0.0])}

    found = rules.finish(prepared(rules, 2), arrays)

    assert found.scores.tolist() == [math.inf, 1.0]


def test_the_root_of_a_negative_number_is_counted_and_comes_last() -> None:
    rules = RULES["product_of_powers", False]
    calibrated_root = {"ctr": np.array([1.0, 1.0]), "cvr": np.array([-0.5, 0.5])}

    found = rules.finish(prepared(rules, 2), calibrated_root)

    assert found.positions.tolist() == [1, 0]
    assert math.isnan(found.scores[1])
    assert found.nan_scores == 1


def test_no_candidates_need_no_outputs() -> None:
    rules = RULES["head", True]

    found = rules.finish(prepared(rules, 0, outputs=("cvr", "emb")), {})

    assert found.positions.tolist() == []
    assert found.scores.shape == (0,)
    assert {name: array.shape for name, array in found.outputs.items()} == {
        "cvr": (0,),
        "emb": (0, 3),
    }


def test_all_candidates_may_be_bad() -> None:
    found = ranked([(0.1, 0.1), (0.2, 0.2)], bad={0: "one", 1: "two"})

    assert found.positions.tolist() == []
    assert found.bad == {0: "one", 1: "two"}


def test_a_score_of_vectors_is_refused() -> None:
    rules = RankingRules(ranking_plan([ITEM]), (TensorSpec("ctr", "FP32", (-1, -1)),))

    with pytest.raises(InvalidInput, match=r"output 'ctr': expected one number .* \[2, 3\]"):
        rules.finish(prepared(rules, 2), {"ctr": np.zeros((2, 3), np.float32)})


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (ranking_plan([ITEM], heads=("nope",)), "no output 'nope'"),
        (ranking_plan([ITEM], heads=("text",)), "'text' has no numbers"),
        (ranking_plan([ITEM], heads=("emb",)), "'emb' .* one number"),
        (
            ranking_plan([ITEM], heads=("ctr", "cvr"), weights=(1.0, 1.0)),
            "head is not made of 2 heads",
        ),
        (ranking_plan([ITEM], id="nope"), "no candidate feature 'nope'"),
        (ranking_plan([ITEM], routing_key="item"), "no user feature 'item'"),
    ],
)
def test_plans_that_contradict_the_graph_are_refused(plan: RankingPlan, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankingRules(plan, OUTPUTS)
