"""Loops whose number of turns no row has a say in.

A claim on a carried value holds for all turns when it holds before the first one and a turn that
starts with it ends with it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from anabranch_graph_opt.flow import (
    Axis,
    Flow,
    Mixed,
    State,
    plain,
)
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_visit import Visit, counted
from anabranch_graph_opt.sizes import Size

__all__ = ["Turn", "settled", "stacked", "trip_count"]

Turn = Callable[[Sequence[State]], list[State]]
"""Walks a body once: claims on the carried values -> claims on all results."""

_MAX_TURNS: Final = 4
"""How often a claim on carried values is weakened before it is given up."""
_ENDLESS: Final = 2**31 - 1


def trip_count(visit: Visit) -> Size | None:
    """The trip count as a size; None where the condition alone ends the loop."""
    if not visit.has(0):
        return None
    numbers = visit.flow(0).numbers
    if numbers is None:
        visit.fixed(0)
        return visit.facts.unknown()
    trips = numbers[0]
    return None if trips.constant is not None and trips.constant >= _ENDLESS else trips


def settled(
    facts: Facts,
    initial: Sequence[State],
    once: Turn,
    skipped: int,
) -> tuple[list[State], list[State]]:
    """Claims on carried values that hold before the first turn and after every turn.

    Args:
        facts: of the analysis.
        initial: claims before the first turn.
        once: walks the body: carried states -> results, the carried ones after `skipped` others.
        skipped: number of results before the carried ones.

    Returns:
        the claims on carried values, and all results of a turn under them.
    """
    states = [_weakened(state) for state in initial]
    facts.loops, row_loop = facts.loops + 1, facts.row_loop
    try:
        for _ in range(_MAX_TURNS):
            results = once(states)
            after = results[skipped : skipped + len(states)]
            joined = [_both_claims(facts, a, b) for a, b in zip(states, after, strict=True)]
            if joined == states:
                return states, results
            states = joined
        given_up = Mixed("a loop changes the shape of a value that it carries")
        hopeless: list[State] = [given_up for _ in states]
        return hopeless, once(hopeless)
    finally:
        facts.loops, facts.row_loop = facts.loops - 1, row_loop


def _weakened(state: State) -> State:
    """What is left of a claim when only shape and rows are kept."""
    if not isinstance(state, Flow):
        return state if isinstance(state, Mixed) else Mixed("a loop carries a sequence")
    if not state.is_data:
        return Mixed("a loop carries positions in the batch or the number of rows")
    return Flow(state.axes, state.current, state.same)


def _both_claims(facts: Facts, before: State, after: State) -> State:
    """What holds of a carried value before and after a turn."""
    after = _weakened(after)
    for state in (before, after):
        if isinstance(state, Mixed):
            return state
    assert isinstance(before, Flow)
    assert isinstance(after, Flow)
    if before.axes == after.axes:
        return Flow(before.axes, before.current or after.current, before.same and after.same)
    if before.space is None and after.space is None and before.rank == after.rank:
        axes = tuple(
            a if a == b else plain(facts.unknown())
            for a, b in zip(before.axes, after.axes, strict=True)
        )
        return Flow(axes, before.current or after.current)
    return Mixed("a loop changes the shape of a value that it carries")


def stacked(state: State, outer: Axis, where: int) -> State:
    """One turn's result as a slice along a new axis."""
    if not isinstance(state, Flow):
        return state if isinstance(state, Mixed) else Mixed("a loop yields sequences")
    if not state.is_data:
        return Mixed("a loop yields positions in the batch or the number of rows")
    place = counted(where, state.rank + 1)
    axes = (*state.axes[:place], outer, *state.axes[place:])
    return Flow(axes, state.current, state.same)
