"""The order of candidates, against `sorted`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.ranking.ordering import best_first
from anabranch_testing.plain_ranking import plain_order

_FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), float("-inf")])
SCORES = st.lists(st.one_of(_FEW, st.floats(width=32)), max_size=60)


@given(scores=SCORES, top_k=st.integers(0, 70), descending=st.booleans())
def test_it_is_the_beginning_of_what_sorted_makes(
    scores: list[float], top_k: int, descending: bool
) -> None:
    array = np.array(scores, np.float32)

    found = best_first(array, top_k, descending=descending)

    expected = plain_order(scores, descending=descending)
    assert found.tolist() == expected[: top_k or None]


@pytest.mark.parametrize("top_k", [1, 2, 10, 100, 499, 500, 999, 1000])
def test_many_ties_are_cut_at_the_lower_positions(top_k: int) -> None:
    rng = np.random.default_rng(5)
    scores = rng.integers(0, 4, 1000).astype(np.float32)
    scores[rng.integers(0, 1000, 300)] = np.nan

    found = best_first(scores, top_k)

    assert found.tolist() == plain_order(scores.tolist(), descending=True)[:top_k]


@pytest.mark.parametrize("top_k", [0, 1, 3])
def test_scores_that_are_no_numbers_keep_their_order(top_k: int) -> None:
    scores = np.full(10, np.nan, np.float32)

    assert best_first(scores, top_k).tolist() == list(range(10))[: top_k or None]


def test_the_answer_is_nobody_elses_memory() -> None:
    scores = np.array([3.0, 1.0, 2.0], np.float32)

    found = best_first(scores, 2)
    found[0] = 7

    assert scores.tolist() == [3.0, 1.0, 2.0]
    assert found.base is None


def test_no_candidates_have_an_order() -> None:
    assert best_first(np.empty(0, np.float32), 5).tolist() == []
