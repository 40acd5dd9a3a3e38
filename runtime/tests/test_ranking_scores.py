"""Calibration and score formulas, against readings of their definitions."""

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.ranking.calibration import calibrated
from anabranch_runtime.ranking.heads import Head
from anabranch_runtime.ranking.plans import CalibrationPlan, FeaturePlan
from anabranch_runtime.ranking.scores import score
from anabranch_testing.plain_ranking import plain_calibrated, plain_score
from anabranch_testing.ranking_plans import ranking_plan, scored_by
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

FORMULAS: tuple[Literal["weighted_sum", "product_of_powers"], ...] = (
    "weighted_sum",
    "product_of_powers",
)

ITEM = FeaturePlan(name="item", side="candidate", type="int64")

CALIBRATIONS = (
    CalibrationPlan(negative_sampling=0.1),
    CalibrationPlan(negative_sampling=1.0),
    CalibrationPlan(platt=(1.3, -0.4)),
    CalibrationPlan(platt=(-2.0, 0.0), logits=True),
    CalibrationPlan(isotonic_x=(0.0, 0.2, 0.7), isotonic_y=(0.1, 0.1, 0.9)),
)

NUMBERS = st.one_of(
    st.floats(0, 1, width=32),
    st.floats(width=32),
    st.sampled_from([0.0, 1.0, -0.5, math.nan, math.inf, -math.inf]),
)


@given(plan=st.sampled_from(CALIBRATIONS), values=st.lists(NUMBERS, min_size=1, max_size=20))
def test_calibrations_are_what_they_say(plan: CalibrationPlan, values: list[float]) -> None:
    with np.errstate(all="ignore"):
        found = calibrated(plan, np.array(values))

    expected = [plain_calibrated(plan, value) for value in values]
    np.testing.assert_allclose(found, expected, rtol=1e-12)  # a few roundings of float64


def test_a_sampled_click_is_as_rare_as_before_sampling() -> None:
    # Half of what was kept were clicks, but only a tenth of the rest was kept: 1 of 11.
    plan = CalibrationPlan(negative_sampling=0.1)

    assert calibrated(plan, np.array([0.5])).tolist() == [pytest.approx(1 / 11)]


def test_platt_knows_certain_probabilities() -> None:
    plan = CalibrationPlan(platt=(1.0, 0.0))

    assert calibrated(plan, np.array([0.0, 1.0])).tolist() == [
        pytest.approx(1e-7),
        pytest.approx(1 - 1e-7),
    ]


@pytest.mark.parametrize(
    "plan",
    [
        CalibrationPlan(),
        CalibrationPlan(negative_sampling=0.5, platt=(1.0, 0.0)),
        CalibrationPlan(isotonic_x=(0.0, 1.0), isotonic_y=(0.0,)),
        CalibrationPlan(negative_sampling=0.5, logits=True),
    ],
)
def test_a_calibration_that_is_none_or_two_is_refused(plan: CalibrationPlan) -> None:
    with pytest.raises(ValueError, match="calibration of 'ctr'"):
        Head(TensorSpec("ctr", "FP32", (-1,)), plan)


@given(
    formula=st.sampled_from(FORMULAS),
    rows=st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=20),
    weights=st.tuples(*[st.sampled_from([0.0, 1.0, 2.0, 0.5, -1.0, 0.3])] * 3),
)
def test_formulas_are_what_they_say(
    formula: Literal["weighted_sum", "product_of_powers"],
    rows: list[tuple[float, ...]],
    weights: tuple[float, ...],
) -> None:
    names: list[str] = ["a", "b", "c"]
    columns = {name: np.array(rows)[:, at] for at, name in enumerate(names)}
    by_name = dict(zip(names, weights, strict=True))

    with np.errstate(all="ignore"):
        found = score(formula, by_name, columns)

    plan = ranking_plan([ITEM], **scored_by(formula, by_name))
    expected = [plain_score(plan, dict(zip(names, row, strict=True))) for row in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-12)  # a few roundings of float64


@pytest.mark.parametrize(
    ("datatype", "array"),
    [
        ("FP16", np.array([[0.5], [0.25]], np.float16)),
        ("FP64", np.array([0.5, 0.25])),
        ("BF16", np.array([0x3F00, 0x3E80], np.uint16)),
        ("FP32", np.array([[0.5], [0.25]], np.float32)),
    ],
)
def test_heads_of_every_float_type_are_read(datatype: str, array: np.ndarray) -> None:
    head = Head(TensorSpec("y", datatype, (-1, *array.shape[1:])))  # type: ignore[arg-type]  # a Datatype

    assert head.numbers(array, 2).tolist() == [0.5, 0.25]


def test_heads_of_integers_are_read() -> None:
    head = Head(TensorSpec("y", "INT32", (-1,)))

    assert head.numbers(np.array([3, -1], np.int32), 2).tolist() == [3.0, -1.0]


def test_a_head_with_other_rows_is_refused() -> None:
    head = Head(TensorSpec("y", "FP32", (-1,)))

    with pytest.raises(InvalidInput, match=r"output 'y': expected 3 rows, .* got shape \[2\]"):
        head.numbers(np.zeros(2, np.float32), 3)


def test_the_answer_is_not_the_graphs_memory() -> None:
    head = Head(TensorSpec("y", "FP64", (-1,)))
    output = np.array([1.0, 2.0])

    head.numbers(output, 2)[:] = 0

    assert output.tolist() == [1.0, 2.0]
