"""Comparing two models: what is different is found, and what both refuse is none of it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_graph_opt.parity.cases import ParityCase
from anabranch_graph_opt.parity.comparison import ParityBudget, ParityReport, compare
from anabranch_wire.errors import InvalidInput

Arrays = Mapping[str, NDArray[Any]]

ONE = np.array([[0.1], [0.5], [0.3], [0.9]], np.float32)
INF, NAN = float("inf"), float("nan")


def report(
    expected: NDArray[Any], found: NDArray[Any], budget: ParityBudget | None = None
) -> ParityReport:
    return compare(giving(expected), giving(found), [CASE], budget or ParityBudget())


def giving(array: NDArray[Any]) -> Callable[[Arrays], Arrays]:
    return lambda inputs: {"p": array}


def refusing(inputs: Arrays) -> Arrays:
    raise InvalidInput("id 7 is outside")


CASE = ParityCase("a batch", {"x": ONE})


def changed(row: int, value: float) -> NDArray[Any]:
    array = ONE.copy()
    array[row] = value
    return array


def test_equal_answers_are_within_any_budget() -> None:
    assert report(ONE, ONE.copy(), ParityBudget(0.0, 1.0)) == ParityReport(1, 0.0, 1.0, 0, "")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (ONE.reshape(4), r"float32 \[4\] instead of float32 \[4, 1\]"),
        (ONE[:3], r"float32 \[3, 1\] instead of float32 \[4, 1\]"),
        (ONE.astype(np.float64), r"float64 \[4, 1\] instead of float32"),
        (changed(1, 0.6), r"differs by up to 0\.1, the budget is 1e-05"),
        (changed(1, NAN), "not finite are in other places"),
        (changed(1, INF), "not finite are in other places"),
    ],
)
def test_what_is_different_is_told(found: NDArray[Any], words: str) -> None:
    made = report(ONE, found)

    assert not made.ok
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(made.difference)
    assert made.difference.startswith("a batch: output 'p': ")


@pytest.mark.parametrize(("one", "other"), [(INF, -INF), (INF, NAN), (NAN, INF), (-INF, INF)])
def test_numbers_that_are_not_finite_are_told_apart(one: float, other: float) -> None:
    assert report(changed(2, one), changed(2, one)).ok
    assert not report(changed(2, one), changed(2, other)).ok


def test_an_output_that_is_missing_is_told() -> None:
    made = compare(giving(ONE), lambda _: {}, [CASE], ParityBudget())

    assert made.difference == "a batch: output 'p': it is missing"


def test_large_answers_may_differ_in_proportion() -> None:
    assert report(ONE * 1e6, ONE * 1e6 * np.float32(1.000005)).ok
    assert not report(ONE * 1e6, ONE * 1e6 * np.float32(1.00005)).ok


def test_rows_that_change_places_are_told_unless_the_budget_makes_them_ties() -> None:
    swapped = ONE[[0, 2, 1, 3]]

    made = report(ONE, swapped, ParityBudget(0.3, 1.0))

    # What is closer than twice the budget is a tie.
    assert made.rank_agreement == pytest.approx(1.0)
    assert made.ok
    strict = report(ONE, swapped, ParityBudget(0.05, 0.9))
    assert "differs by up to 0.2" in strict.difference
    assert strict.rank_agreement == pytest.approx(5 / 6)


def test_the_order_of_many_rows_is_looked_at_in_bounded_memory() -> None:
    rows = np.linspace(0, 1, 50_000)

    made = report(rows, rows[::-1].copy())

    assert made.rank_agreement == 0.0
    assert report(rows, rows).rank_agreement == 1.0


def test_what_both_refuse_is_counted_and_no_difference() -> None:
    made = compare(refusing, refusing, [CASE, CASE], ParityBudget())

    assert (made.cases, made.refused, made.difference) == (2, 2, "")


def test_what_one_of_them_refuses_is_told() -> None:
    first = compare(refusing, giving(ONE), [CASE], ParityBudget())
    second = compare(giving(ONE), refusing, [CASE], ParityBudget())

    assert first.difference == (
        "a batch: the original refuses it (id 7 is outside), the optimised model answers"
    )
    assert second.difference == (
        "a batch: the original answers, the optimised model refuses it (id 7 is outside)"
    )


def test_the_first_difference_is_told_and_the_worst_is_counted() -> None:
    answers = iter([changed(0, 0.2), changed(0, 0.8)])

    made = compare(giving(ONE), lambda _: {"p": next(answers)}, [CASE, CASE], ParityBudget())

    assert made.max_abs_diff == pytest.approx(0.7)
    assert "differs by up to 0.1," in made.difference


def test_reports_are_added_up() -> None:
    first = ParityReport(3, 0.5, 0.9, 1, "")
    second = ParityReport(4, 0.25, 0.8, 2, "second")

    assert first.also(second) == ParityReport(7, 0.5, 0.8, 3, "second")
    assert second.also(ParityReport(1, 1.0, 1.0, 0, "third")).difference == "second"


def test_batches_without_rows_and_texts_are_compared() -> None:
    assert report(ONE[:0], ONE[:0].copy()).ok
    assert not report(np.array([True, False]), np.array([True, True])).ok
    assert report(np.array([b"a"], object), np.array([b"a"], object)).ok
    assert not report(np.array([b"a"], object), np.array([b"b"], object)).ok
