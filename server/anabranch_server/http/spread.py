"""Which worker a connection is best with, and which has too many: policy on plain numbers."""

from collections.abc import Sequence
from typing import Final

__all__ = ["HISTORY", "best_place", "surplus"]

HISTORY: Final = 10
"""Looks at all queues that `surplus` judges by."""

_LEAST_QUEUE: Final = 4
_SHARE: Final = 32


def best_place(loads: Sequence[int], takes: Sequence[bool], at: int) -> int:
    """Return the worker that should have a fresh connection.

    One that has at least two fewer is better, since one fewer is what moving it would only turn
    round. Of equal ones the nearest behind `at` is chosen, so that workers that decide at the same
    moment do not all choose the same.

    Args:
        loads: connections by worker, the fresh one counted where it is now.
        takes: which workers take connections.
        at: where it is now.
    """
    count = len(loads)
    others = [worker % count for worker in range(at + 1, at + count) if takes[worker % count]]
    if not others:
        return at
    fewest = min(others, key=loads.__getitem__)
    return fewest if loads[fewest] + 1 < loads[at] or not takes[at] else at


def surplus(
    history: Sequence[Sequence[int]], loads: Sequence[int], takes: Sequence[bool], own: int
) -> int:
    """Return how many connections a worker should give up, so that they come back elsewhere.

    None, unless its queue was the longest by far for the whole `history`, and a connection less
    here and one more elsewhere brings the queues closer: a worker whose only connection keeps it
    busy would only pass the trouble on.

    Args:
        history: queues by worker, of the last `HISTORY` looks.
        loads: connections by worker.
        takes: which workers take connections.
        own: which worker asks.
    """
    others = [worker for worker in range(len(loads)) if takes[worker] and worker != own]
    if len(history) < HISTORY or not others or not loads[own]:
        return 0
    for queues in history:
        if queues[own] < _LEAST_QUEUE or queues[own] <= max(queues[other] for other in others):
            return 0
    mean_own = sum(queues[own] for queues in history) / len(history)
    mean_least = min(sum(queues[other] for queues in history) for other in others) / len(history)
    of_one = mean_own / loads[own]
    helpful = int((mean_own - mean_least) / (2 * of_one))
    if mean_own < 2 * mean_least:
        return 0
    return min(helpful, 1 + loads[own] // _SHARE)
