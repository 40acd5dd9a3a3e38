"""Due times have the stated rate, the same ones for the same seed, and never drift."""

from itertools import islice, pairwise
from statistics import fmean, stdev

import pytest

from openloop.arrivals import constant, due_times, poisson


def test_constant_arrivals_do_not_drift() -> None:
    times = list(islice(constant(3.0), 3_000_001))

    assert times[:4] == [0, 333_333_333, 666_666_667, 1_000_000_000]
    assert times[-1] == 1_000_000 * 10**9


def test_poisson_arrivals_have_exponential_distances() -> None:
    distances = [b - a for a, b in pairwise(islice(poisson(1000.0, seed=3), 100_001))]

    # Of 100,000 draws the mean is within 1 % and the deviation, equal to it, within 2 %.
    assert fmean(distances) == pytest.approx(1e6, rel=0.01)
    assert stdev(distances) == pytest.approx(1e6, rel=0.02)
    assert min(distances) >= 0


def test_a_seed_decides_poisson_arrivals() -> None:
    one, same, other = (list(islice(poisson(10.0, seed), 5)) for seed in (1, 1, 2))

    assert one == same != other


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        due_times("constant", rate, 1)
