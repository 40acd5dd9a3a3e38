import pytest

from anabranch_runtime.batch_size import (
    BatchCost,
    best_batch_rows,
    best_split_rows,
    measure_costs,
)
from anabranch_wire.errors import InvalidInput


def linear(fixed_s: float, row_s: float) -> list[BatchCost]:
    return [BatchCost(rows, fixed_s + rows * row_s) for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256)]


def test_batch_rows_grow_with_the_fixed_cost() -> None:
    cheap_start = best_batch_rows(linear(1e-6, 20e-6))
    dear_start = best_batch_rows(linear(500e-6, 20e-6))

    assert cheap_start < dear_start


def test_batch_rows_stop_where_the_curve_falls_again() -> None:
    costs = [BatchCost(1, 1e-3), BatchCost(8, 2e-3), BatchCost(64, 100e-3)]

    assert best_batch_rows(costs, overhead_s=0.0) == 8


def test_a_constant_rate_needs_no_merging_without_overhead() -> None:
    assert best_batch_rows(linear(0.0, 1e-3), overhead_s=0.0) == 1


def test_split_parts_outlast_the_hand_over() -> None:
    costs = linear(10e-6, 20e-6)
    part = best_split_rows(costs, overhead_s=50e-6)

    assert part * 20e-6 + 10e-6 >= 200e-6
    assert part <= 16


def test_split_of_a_cheap_model_is_extrapolated() -> None:
    costs = [BatchCost(rows, rows * 1e-9) for rows in (1, 256)]

    assert best_split_rows(costs, overhead_s=50e-6) == 200_000


def test_measuring_stops_at_its_budget() -> None:
    now = 0.0
    ran: list[int] = []

    def run(rows: int) -> None:
        nonlocal now
        ran.append(rows)
        now += 0.01 * rows

    costs = measure_costs(run, clock=lambda: now)

    assert [cost.rows for cost in costs] == [1, 2, 4]
    assert costs[0].seconds == pytest.approx(0.01)
    assert max(ran) == 4


def test_measuring_starts_at_the_smallest_size() -> None:
    ran: list[int] = []

    costs = measure_costs(ran.append, smallest=2)

    assert costs[0].rows == 2
    assert 1 not in ran


def test_measuring_starts_at_any_smallest_size() -> None:
    assert [cost.rows for cost in measure_costs(lambda rows: None, smallest=300)] == [300]


def test_measuring_ends_where_the_model_fails() -> None:
    def run(rows: int) -> None:
        if rows > 8:
            raise InvalidInput(f"{rows} rows")

    assert [cost.rows for cost in measure_costs(run)] == [1, 2, 4, 8]


def test_a_model_that_fails_at_once_is_not_measured() -> None:
    def run(rows: int) -> None:
        raise InvalidInput(f"{rows} rows")

    with pytest.raises(InvalidInput, match="2 rows"):
        measure_costs(run, smallest=2)
