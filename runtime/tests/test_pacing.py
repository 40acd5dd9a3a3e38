import math

import pytest

from anabranch_runtime.batch_size import HAND_OVER_S, BatchCost
from anabranch_runtime.pacing import Pace, pace_of


def seen(fixed_rows: float = 0.0, full_rows: int = 8) -> Pace:
    """One second a row, seen at 0 s."""
    pace = Pace(full_rows, fixed_rows)
    pace.observe(1, 1.0 + fixed_rows, now=0.0)
    return pace


def test_nothing_measured_promises_and_refuses_nothing() -> None:
    pace = Pace(8, 1.0)

    assert pace.run_s(100) == pace.share_s(100) == 0.0
    assert pace.rows_within(1e-9, 0.0) == math.inf


def test_rows_and_seconds_belong_together() -> None:
    pace = seen(fixed_rows=3.0)

    assert pace.run_s(5) == pytest.approx(8.0)
    assert pace.rows_within(8.0, now=0.5) == pytest.approx(5.0)
    assert pace.rows_within(2.0, now=0.5) < 0


def test_a_request_among_many_bears_its_part_of_a_batch() -> None:
    pace = seen(fixed_rows=8.0, full_rows=8)
    alone = seen(fixed_rows=8.0, full_rows=0)

    assert pace.share_s(2) == pytest.approx(2 + 2)
    assert pace.share_s(100) == pytest.approx(100 + 8)
    assert alone.share_s(2) == pytest.approx(2 + 8)


def test_the_average_follows_the_machine_but_not_a_stall() -> None:
    pace = seen()
    pace.observe(1, 1000.0, now=0.1)
    assert pace.run_s(1) == pytest.approx(1.375)

    for step in range(100):
        pace.observe(2, 4.0, now=0.1 + step / 100)
    assert pace.run_s(1) == pytest.approx(2.0, rel=0.01)


def test_after_a_pause_only_the_newest_counts() -> None:
    pace = seen()
    assert pace.rows_within(1.0, now=3.9) == pytest.approx(1.0)
    assert pace.rows_within(1.0, now=4.1) == math.inf  # four batches of a second later

    pace.observe(1, 0.01, now=5.0)

    assert pace.run_s(1) == pytest.approx(0.01)
    assert pace.rows_within(1.0, now=5.9) == pytest.approx(100.0)


def test_a_batch_without_rows_or_cost_teaches_nothing() -> None:
    pace = seen()
    pace.observe(0, 5.0, now=0.5)

    assert pace.run_s(1) == pytest.approx(1.0)


def test_small_batches_are_worth_it_where_rows_cost_and_not_where_batches_do() -> None:
    assert seen(fixed_rows=0.0).is_worth(1.0, 64)
    assert not seen(fixed_rows=64.0).is_worth(1.0, 64)
    assert seen(fixed_rows=64.0).is_worth(1.0, 1)
    assert seen(fixed_rows=64.0).is_worth(math.inf, 64)


def test_a_pace_is_found_at_load() -> None:
    costs = [BatchCost(rows, 0.001 + 0.0001 * rows) for rows in (1, 8, 64)]

    pace = pace_of(costs, full_rows=64, typical_rows=1)

    assert pace.run_s(64) == pytest.approx(0.0074)
    assert pace.run_s(1) == pytest.approx((0.001 + HAND_OVER_S) * 0.0074 / 0.00745, rel=0.1)
    assert pace.rows_within(1e-9, 0.0) == math.inf  # drops nobody before it is seen to be so


@pytest.mark.parametrize(
    "costs", [[], [BatchCost(4, 0.01)], [BatchCost(1, 0.01), BatchCost(64, 0.01)]]
)
def test_a_pace_from_little_is_no_worse_than_one_price(costs: list[BatchCost]) -> None:
    pace = pace_of(costs, full_rows=64, typical_rows=4)
    pace.observe(4, 0.01, now=0.0)

    assert pace.run_s(4) == pytest.approx(0.01)
    assert 0.002 < pace.run_s(1) <= 0.01
