"""Loops over rows, one row a turn: the exported form of an embedding bag.

Turn i reads what belongs to row i, and what it yields is stacked in the order of the rows. The body
is walked once, for a row index that is an atom; what it yields may depend on that row
(`Flow.current`) and on no other.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.flow import (
    SCALAR,
    Comparison,
    Factor,
    Flow,
    Mixed,
    Mixing,
    Numbers,
    RowList,
    Space,
    State,
    ValueList,
)
from anabranch_graph_opt.row_rules.turns import trip_count
from anabranch_graph_opt.row_visit import Visit
from anabranch_graph_opt.sizes import ONE, ZERO, Size

__all__ = ["over_rows", "rows_counted"]

_EARLIER: Final = Mixed("a loop over the rows reads what it collected from other rows")
"""Stands for everything that a list has collected before the turn that is walked."""

_CARRIED: Final = Mixed("a loop over the rows carries a value from row to row")


def rows_counted(visit: Visit, initial: Sequence[State]) -> tuple[Space, int | None] | None:
    """The space whose entries the turns run through, with the carried value that counts them.

    The counter is None where the loop itself counts (its trip count is the number of rows). Whether
    a carried value really counts is checked once the body has been walked.
    """
    condition = visit.flow(1) if visit.has(1) else replace(SCALAR, meaning=Numbers((ONE,)))
    trips = trip_count(visit)
    if trips is not None:
        space = visit.facts.space_of_size(trips)
        return None if space is None or condition.constants != (1,) else (space, None)
    comparison = condition.comparison
    if comparison is None:
        return None
    space = visit.facts.space_of_size(comparison.right)
    for i, state in enumerate(initial):
        if isinstance(state, Flow) and state.numbers == (ZERO,) == (comparison.left,):
            return None if space is None else (space, i)
    return None


def over_rows(
    visit: Visit, body: ir.Graph, initial: Sequence[State], space: Space, counter: int | None
) -> Sequence[State]:
    """Claims on the results of a loop over rows.

    Args:
        visit: of the `Loop`.
        body: its body.
        initial: claims on the initial carried values.
        space: the turns run through its entries.
        counter: the carried value that counts the turns, or None.

    Raises:
        Mixing: a turn depends on other turns, or the turns are not one for each row.
    """
    facts = visit.facts
    if facts.loops:
        raise Mixing("loops over the rows inside a loop")
    at = Size.of(facts.atom("i", counts_rows=True))
    index = replace(SCALAR, meaning=Numbers((at,)))
    grown = [isinstance(state, ValueList) and not state.items for state in initial]
    entering: list[State] = [
        _counting(state, at) if i == counter
        else ValueList((_EARLIER,)) if grown[i]
        else _CARRIED
        for i, state in enumerate(initial)
    ]  # fmt: skip
    facts.loops, facts.row_loop = facts.loops + 1, (space, at)
    try:
        results = visit.walk(body, [index, replace(SCALAR, meaning=Numbers((ONE,))), *entering])
    finally:
        facts.loops, facts.row_loop = facts.loops - 1, None
    goes_on, left, stacked = results[0], results[1 : 1 + len(initial)], results[1 + len(initial) :]
    _check_turns(goes_on, left, space, at, counter)
    outputs: list[State] = []
    for i, state in enumerate(left):
        items = state.items if isinstance(state, ValueList) else ()
        if i == counter:
            outputs.append(_counting(initial[i], Size.of(space.atom)))
        elif grown[i] and items[:1] == (_EARLIER,) and len(items) == 2:
            item = items[1]
            outputs.append(RowList(space, _own(item)) if isinstance(item, Flow) else item)
        else:
            outputs.append(state if isinstance(state, Mixed) else _CARRIED)
    return outputs + [_stacked_rows(state, space) for state in stacked]


def _counting(state: State, at: Size) -> State:
    assert isinstance(state, Flow)
    return replace(state, meaning=Numbers((at,)))


def _check_turns(
    goes_on: State, left: Sequence[State], space: Space, at: Size, counter: int | None
) -> None:
    """Check that the body runs once for every row, in order.

    Raises:
        Mixing: it may stop earlier or later, or skip a row.
    """
    if not isinstance(goes_on, Flow):
        raise Mixing("may stop before it has seen all rows")
    if counter is None:
        if goes_on.constants != (1,):
            raise Mixing("may stop before it has seen all rows")
        return
    counted_to = left[counter]
    following = at + ONE
    if not isinstance(counted_to, Flow) or counted_to.numbers != (following,):
        raise Mixing("does not count its turns one by one")
    if goes_on.comparison != Comparison(following, Size.of(space.atom)):
        raise Mixing("may stop before it has seen all rows")


def _own(item: Flow) -> Flow:
    """What a turn yields, checked to hang on its own row alone.

    Raises:
        Mixing: it holds all rows, or counts them.
    """
    if not item.is_data or item.space is not None:
        raise Mixing("yields all rows, or positions in the batch, for each row")
    return replace(item, meaning=None, current=True)


def _stacked_rows(state: State, space: Space) -> State:
    if isinstance(state, Mixed):
        return state
    if not isinstance(state, Flow):
        return Mixed("a loop yields sequences")
    item = _own(state)
    return Flow(((Factor(Size.of(space.atom), space),), *item.axes))
