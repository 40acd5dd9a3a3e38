"""How many rows a batch should have: measured at load, decided by plain arithmetic."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch_wire.errors import AnabranchError

__all__ = ["HAND_OVER_S", "BatchCost", "best_batch_rows", "best_split_rows", "measure_costs"]

HAND_OVER_S: Final = 50e-6
"""What a batch costs beside the graph: waking an executor, staging, delivering."""

_FLAT: Final = 0.97
_ROWS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_BUDGET_S: Final = 0.25
_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class BatchCost:
    """Time of one batch of `rows` rows, in seconds."""

    rows: int
    seconds: float


def measure_costs(
    run: Callable[[int], None],
    smallest: int = 1,
    largest: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[BatchCost]:
    """Time `run(rows)` for growing numbers of rows, within a quarter of a second.

    Args:
        run: computes one batch of that many rows on the calling thread.
        smallest: fewest rows that `run` takes.
        largest: most rows of interest; None = as many as are ever tried.
        clock: seconds.

    Returns:
        The best time seen for each number of rows; at least one entry. It ends before the first
        number of rows that `run` fails on.

    Raises:
        AnabranchError: `run` fails on the very first number of rows.
    """
    costs: list[BatchCost] = []
    begin = clock()
    most = _ROWS[-1] if largest is None else largest
    for rows in sorted({smallest, *[size for size in _ROWS if smallest < size <= most]}):
        try:
            run(rows)  # first run of a shape allocates
        except AnabranchError:
            if not costs:
                raise
            break
        best = float("inf")
        for _ in range(_ROUNDS):
            start = clock()
            run(rows)
            now = clock()
            best = min(best, now - start)
            if now - begin > _BUDGET_S:
                break
        costs.append(BatchCost(rows, best))
        if clock() - begin > _BUDGET_S:
            break
    return costs


def best_batch_rows(costs: Sequence[BatchCost], overhead_s: float = HAND_OVER_S) -> int:
    """Smallest measured size whose rate, hand-over included, is within 3 % of the best."""
    rates = [cost.rows / (cost.seconds + overhead_s) for cost in costs]
    best = max(rates)
    return next(cost.rows for cost, rate in zip(costs, rates, strict=True) if rate >= _FLAT * best)


def best_split_rows(costs: Sequence[BatchCost], overhead_s: float = HAND_OVER_S) -> int:
    """Smallest part worth handing to another executor: it runs four times the hand-over.

    Never below the size at which rows are about as cheap as in the largest measured batch divided
    by two, since smaller parts would cost the machine more than they shorten the answer.
    """
    per_row = [cost.seconds / cost.rows for cost in costs]
    cheap = 2.0 * min(per_row)
    for cost, each in zip(costs, per_row, strict=True):
        if cost.seconds >= 4.0 * overhead_s and each <= cheap:
            return cost.rows
    last = costs[-1]
    return max(last.rows, round(4.0 * overhead_s / (last.seconds / last.rows)))
