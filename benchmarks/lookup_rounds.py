"""Interleaved rounds: what is compared runs back to back inside each round, on one core.

Time is the CPU time of the calling thread, where nothing else is said, so that another process on
the core does not count. Trust ratios of one round, not nanoseconds.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final, NewType

__all__ = ["Seconds", "best", "interleaved", "ratios"]

Seconds = NewType("Seconds", float)
Clock = Callable[[], int]

_MOST_REPEATS: Final = 10_000


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    least_s: float = 0.02,
    clock: Clock = time.thread_time_ns,
) -> dict[str, list[Seconds]]:
    """Run every candidate in each round, after one run of each that does not count.

    Args:
        candidates: name -> one piece of work.
        rounds: how many rounds.
        least_s: a candidate repeats its work within a round until about this much time is spent.
        clock: tells nanoseconds.

    Returns:
        name -> the time of one piece of work, round by round.
    """
    repeats = {name: _repeats(work, least_s, clock) for name, work in candidates.items()}
    times: dict[str, list[Seconds]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, work in candidates.items():
            times[name].append(_time(work, repeats[name], clock))
    return times


def best(candidates: Mapping[int, Callable[[], object]]) -> int:
    """Return the key of the fastest of `candidates`: the best of three runs of each."""
    fastest = {
        key: min(_time(work, 1, time.thread_time_ns) for _ in range(3))
        for key, work in candidates.items()
    }
    return min(fastest, key=lambda key: fastest[key])


def ratios(times: Sequence[float], base: Sequence[float]) -> list[float]:
    """Return `times` over `base`, round by round."""
    return [one / other for one, other in zip(times, base, strict=True)]


def _repeats(work: Callable[[], object], least_s: float, clock: Clock) -> int:
    _time(work, 1, clock)
    once = median(_time(work, 1, clock) for _ in range(3))
    return max(1, min(_MOST_REPEATS, round(least_s / max(once, 1e-9))))


def _time(work: Callable[[], object], repeats: int, clock: Clock) -> Seconds:
    begin = clock()
    for _ in range(repeats):
        work()
    return Seconds((clock() - begin) / repeats / 1e9)
