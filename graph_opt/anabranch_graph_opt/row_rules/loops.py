"""`Loop` and `Scan`: over steps that all rows share, or over the rows themselves."""

from collections.abc import Mapping, Sequence
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.flow import (
    SCALAR,
    Flow,
    Mixed,
    Mixing,
    State,
    axis_size,
    plain,
)
from anabranch_graph_opt.row_rules.row_loops import over_rows, rows_counted
from anabranch_graph_opt.row_rules.turns import settled, stacked, trip_count
from anabranch_graph_opt.row_visit import Rule, Visit, counted
from anabranch_graph_opt.sizes import Size

__all__ = ["RULES"]


def _loop(visit: Visit) -> Sequence[State]:
    body = visit.node.attributes["body"].as_graph()
    carried = list(visit.states[2:])
    if any(state is None for state in carried):
        raise Mixing("lacks an initial value")
    initial = [state for state in carried if state is not None]
    rows = rows_counted(visit, initial)
    if rows is not None:
        return over_rows(visit, body, initial, *rows)
    return _over_steps(visit, body, initial)


def _over_steps(visit: Visit, body: ir.Graph, initial: Sequence[State]) -> Sequence[State]:
    """A loop whose number of turns no row has a say in."""
    trips = trip_count(visit)
    if trips is not None and trips.counts_rows:
        raise Mixing("runs a number of turns that depends on the number of rows")
    if visit.has(1) and not visit.flow(1).constants:
        visit.fixed(1)

    def once(states: Sequence[State]) -> list[State]:
        return visit.walk(body, [SCALAR, SCALAR, *states])

    states, results = settled(visit.facts, initial, once, skipped=1)
    goes_on = results[0]
    if isinstance(goes_on, Mixed):
        raise Mixing("", inherited=goes_on.cause)
    if not isinstance(goes_on, Flow) or not goes_on.is_data or goes_on.space is not None:
        raise Mixing("ends by the data of rows")
    if goes_on.current:
        raise Mixing("runs a number of turns that depends on the row")
    exact = trips if trips is not None and goes_on.constants == (1,) else visit.facts.unknown()
    scanned = [stacked(state, plain(exact), 0) for state in results[1 + len(initial) :]]
    return [*states, *scanned]


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

    states, results = settled(visit.facts, initial, once, skipped=0)
    outer = plain(length if length is not None else visit.facts.unknown())
    places = visit.integers("scan_output_axes") or (0,) * (len(results) - carried)
    return [
        *states,
        *(stacked(s, outer, place) for s, place in zip(results[carried:], places, strict=True)),
    ]


RULES: Final[Mapping[str, Rule]] = {"Loop": _loop, "Scan": _scan}
