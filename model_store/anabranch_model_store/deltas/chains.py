"""Which deltas to apply, one after the other, to come from one to another: the fewest that do.

A delta holds everything of deltas `replaces_from` to itself, so it goes on top of any state from
`replaces_from - 1` on. Policy on plain numbers: headers are asked for one at a time, the newest
first, and none twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Chain", "shortest_chain"]

_LOOKS: Final = 256
"""Headers that are read for one more delta of a chain, where that many could be before it."""

ReplacesFrom = Callable[[int], int | None]
"""Number of a delta -> what it replaces everything from; None where it is not there."""

Numbers = Callable[[int, int], Sequence[int]]
"""First and last number -> those between them that may be there, rising."""


def _each(first: int, last: int) -> Sequence[int]:
    return range(first, last + 1)


@dataclass(frozen=True, slots=True)
class Chain:
    """What to apply.

    Attributes:
        deltas: one after the other; empty where nothing can be.
        missing: the number for want of which they end before the one that was asked for; None
            where they do not.
    """

    deltas: tuple[int, ...]
    missing: int | None = None


def shortest_chain(
    applied: int,
    upto: int,
    replaces_from: ReplacesFrom,
    looks: int = _LOOKS,
    numbers: Numbers = _each,
) -> Chain:
    """Return the fewest deltas that lead from one to another, or as far as can be.

    Where a gap is in the way, it is the fewest to the newest delta below all such gaps. A delta
    that replaces more than `looks` others is preceded by one of the `looks` oldest that it allows,
    even if a newer one would do with fewer in all.

    Args:
        applied: the newest delta that is applied.
        upto: the delta to come to.
        replaces_from: see there.
        looks: headers to read for one more delta of the chain.
        numbers: of deltas that are worth a look, which is what a gap of millions costs nothing by.
    """
    known: dict[int, int | None] = {}

    def look(number: int) -> int | None:
        if number not in known:
            known[number] = replaces_from(number)
        return known[number]

    missing: int | None = None
    while upto > applied:
        found = _chain(applied, upto, look, looks, numbers)
        if isinstance(found, int):  # a gap is one only if all were looked at
            found = _chain(applied, upto, look, upto, numbers)
        if isinstance(found, tuple):
            return Chain(found, missing)
        below = numbers(applied + 1, found - 1)
        upto = below[-1] if below else applied
        missing = upto + 1
    return Chain((), missing)


def _chain(
    applied: int, upto: int, look: ReplacesFrom, looks: int, numbers: Numbers
) -> tuple[int, ...] | int:
    """Return the fewest deltas that lead to one, or the number of the one that is missing.

    From a state `lowest` and all above it `upto` is reached by as many deltas as there were rounds;
    each round finds the lowest state from which it is reached by one more.
    """
    steps: list[tuple[int, int]] = []  # for each round: a delta, and the lowest state before it
    lowest, above = upto, upto + 1
    while lowest > applied:
        best: tuple[int, int] | None = None
        seen = 0
        for number in numbers(lowest, above - 1):  # those that lead to a state of the last round
            replaces = look(number)
            if replaces is None:
                continue
            seen += 1
            if best is None or replaces - 1 < best[1]:
                best = (number, replaces - 1)
            if replaces - 1 <= applied or seen >= looks:
                break
        if best is None or best[1] >= lowest:
            return lowest
        steps.append(best)
        lowest, above = best[1], lowest
    return tuple(number for number, _ in reversed(steps))
