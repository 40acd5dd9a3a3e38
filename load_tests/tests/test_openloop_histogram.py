"""A histogram tells every duration within 1/128, never too low, in memory that does not grow."""

import math
import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openloop import Histogram

DURATIONS = st.integers(min_value=0, max_value=2**40 - 1)


@given(st.lists(DURATIONS, min_size=1, max_size=50), st.floats(min_value=0.1, max_value=100))
def test_a_percentile_is_never_too_low_and_at_most_a_128th_too_high(
    durations: list[int], percent: float
) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.record(duration)

    exact = sorted(durations)[max(0, math.ceil(len(durations) * percent / 100) - 1)]
    told = histogram.percentile_ns(percent)
    assert exact <= told <= exact + exact / 128


@given(st.lists(DURATIONS, max_size=20), st.lists(DURATIONS, max_size=20))
def test_a_total_is_what_one_histogram_would_have_seen(left: list[int], right: list[int]) -> None:
    parts = (Histogram(), Histogram())
    together = Histogram()
    for part, durations in zip(parts, (left, right), strict=True):
        for duration in durations:
            part.record(duration)
            together.record(duration)

    assert Histogram.total(parts).summary() == together.summary()


def test_mean_and_maximum_are_exact() -> None:
    histogram = Histogram()
    for duration in (1_000_003, 3_000_001):
        histogram.record(duration)

    summary = histogram.summary()
    assert (summary.count, summary.max_ms) == (2, 3.000001)
    assert summary.mean_ms == pytest.approx(2.000002, abs=1e-12)  # double rounding only


def test_an_empty_histogram_says_zero() -> None:
    assert Histogram().summary().p99_ms == 0


@pytest.mark.parametrize(("duration", "told"), [(-5, 0), (2**50, 2**40 - 1)])
def test_durations_out_of_range_count_as_the_nearest(duration: int, told: int) -> None:
    histogram = Histogram()
    histogram.record(duration)

    assert histogram.percentile_ns(50) == told


def test_memory_does_not_grow_with_what_is_recorded() -> None:
    histogram = Histogram()
    before = sys.getsizeof(histogram._counts)
    draw = random.Random(7)
    for _ in range(10_000):
        histogram.record(draw.randrange(2**40))

    assert sys.getsizeof(histogram._counts) == before < 64 * 1024
