"""`Loop` and `Scan`: over steps, where claims must survive a turn, or over rows, one at a time.

A loop over rows is the exported form of an embedding bag: turn i reads what belongs to row i, and
what it yields is stacked in the order of the rows. Its body is walked once, for a row index that is
an atom; what it yields may depend on that row (`Flow.current`) and on no other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.flow import (
    SCALAR,
    Axis,
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
    axis_size,
    plain,
)
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_visit import Rule, Visit, counted
from anabranch_graph_opt.sizes import ONE, ZERO, Size

__all__ = ["RULES"]

Turn = Callable[[Sequence[State]], list[State]]
"""Walks a body once: claims on the carried values -> claims on all results."""

_EARLIER: Final = Mixed("a loop over the rows reads what it collected from other rows")
"""Stands for everything that a list has collected before the turn that is walked."""

_MAX_TURNS: Final = 4
"""How often a claim on carried values is weakened before it is given up."""
_ENDLESS: Final = 2**31 - 1


def _loop(visit: Visit) -> Sequence[State]:
    body = visit.node.attributes["body"].as_graph()
    carried = list(visit.states[2:])
    if any(state is None for state in carried):
        raise Mixing("lacks an initial value")
    initial = [state for state in carried if state is not None]
    rows = _rows_counted(visit, initial)
    if rows is not None:
        return _over_rows(visit, body, initial, *rows)
    return _over_steps(visit, body, initial)


def _rows_counted(visit: Visit, initial: Sequence[State]) -> tuple[Space, int | None] | None:
    """The space whose entries the turns run through, with the carried value that counts them.

    The counter is None where the loop itself counts (its trip count is the number of rows). Whether
    a carried value really counts is checked once the body has been walked.
    """
    condition = visit.flow(1) if visit.has(1) else replace(SCALAR, meaning=Numbers((ONE,)))
    trips = _trip_count(visit)
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


def _trip_count(visit: Visit) -> Size | None:
    """The trip count as a size; None where the condition alone ends the loop."""
    if not visit.has(0):
        return None
    numbers = visit.flow(0).numbers
    if numbers is None:
        visit.fixed(0)
        return visit.facts.unknown()
    trips = numbers[0]
    return None if trips.constant is not None and trips.constant >= _ENDLESS else trips


def _over_rows(
    visit: Visit, body: ir.Graph, initial: Sequence[State], space: Space, counter: int | None
) -> Sequence[State]:
    facts = visit.facts
    if facts.loops:
        raise Mixing("loops over the rows inside a loop")
    at = Size.of(facts.atom("i", counts_rows=True))
    index = replace(SCALAR, meaning=Numbers((at,)))
    grown = [isinstance(state, ValueList) and not state.items for state in initial]
    entering: list[State] = [
        _counting(state, at) if i == counter
        else ValueList((_EARLIER,)) if grown[i]
        else Mixed("a loop over the rows carries a value from row to row")
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
            outputs.append(Mixed("a loop over the rows carries a value from row to row"))
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


def _over_steps(visit: Visit, body: ir.Graph, initial: Sequence[State]) -> Sequence[State]:
    """A loop whose number of turns no row has a say in."""
    trips = _trip_count(visit)
    if trips is not None and trips.counts_rows:
        raise Mixing("runs a number of turns that depends on the number of rows")
    if visit.has(1) and not visit.flow(1).constants:
        visit.fixed(1)
    turn = SCALAR

    def once(states: Sequence[State]) -> list[State]:
        return visit.walk(body, [turn, SCALAR, *states])

    states, results = _settled(visit.facts, initial, once, skipped=1)
    goes_on = results[0]
    if isinstance(goes_on, Mixed) or not isinstance(goes_on, Flow):
        raise Mixing("ends by the data of rows")
    if not goes_on.is_data or goes_on.space is not None or goes_on.current:
        raise Mixing("ends by the data of rows")
    exact = trips if trips is not None and goes_on.constants == (1,) else visit.facts.unknown()
    scanned = [_stacked(state, plain(exact), 0) for state in results[1 + len(initial) :]]
    return [*states, *scanned]


def _settled(
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
            joined = [_both(facts, a, b) for a, b in zip(states, after, strict=True)]
            if joined == states:
                return states, results
            states = joined
        given_up = Mixed("a loop changes the shape of a value that it carries")
        states = [_both(facts, given_up, state) for state in states]
        return states, once(states)
    finally:
        facts.loops, facts.row_loop = facts.loops - 1, row_loop


def _weakened(state: State) -> State:
    """What is left of a claim when only shape and rows are kept."""
    if not isinstance(state, Flow):
        return state if isinstance(state, Mixed) else Mixed("a loop carries a sequence")
    if not state.is_data:
        return Mixed("a loop carries positions in the batch or the number of rows")
    return Flow(state.axes, state.current, state.same)


def _both(facts: Facts, before: State, after: State) -> State:
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


def _stacked(state: State, outer: Axis, where: int) -> State:
    """One turn's result as a slice along a new axis."""
    if not isinstance(state, Flow):
        return state if isinstance(state, Mixed) else Mixed("a loop yields sequences")
    if not state.is_data:
        return Mixed("a loop yields positions in the batch or the number of rows")
    place = counted(where, state.rank + 1)
    axes = (*state.axes[:place], outer, *state.axes[place:])
    return Flow(axes, state.current, state.same)


def _scan(visit: Visit) -> Sequence[State]:
    """Steps are slices of the scanned inputs along axes that hold no rows."""
    if visit.opset < 9:
        raise Mixing("uses the batched Scan of operator set 8")
    body = visit.node.attributes["body"].as_graph()
    scanned = visit.integer("num_scan_inputs", 0)
    carried = len(visit.states) - scanned
    axes = visit.integers("scan_input_axes") or (0,) * scanned
    slices: list[State] = []
    length: Size | None = None
    for i, given in enumerate(axes):
        data = visit.data(carried + i)
        where = counted(given, data.rank)
        visit.off_rows(carried + i, [where], "steps along")
        length = axis_size(data.axes[where])
        slices.append(data.with_axes(f for j, f in enumerate(data.axes) if j != where))
    initial = [visit.state(i) for i in range(carried)]

    def once(states: Sequence[State]) -> list[State]:
        return visit.walk(body, [*states, *slices])

    states, results = _settled(visit.facts, initial, once, skipped=0)
    outer = plain(length if length is not None else visit.facts.unknown())
    places = visit.integers("scan_output_axes") or (0,) * (len(results) - carried)
    return [
        *states,
        *(_stacked(s, outer, place) for s, place in zip(results[carried:], places, strict=True)),
    ]


RULES: Final[Mapping[str, Rule]] = {"Loop": _loop, "Scan": _scan}
