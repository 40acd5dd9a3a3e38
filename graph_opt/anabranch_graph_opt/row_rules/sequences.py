"""ONNX sequences: lists of known items, and lists with one item for each row."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch_graph_opt.flow import (
    Axis,
    Factor,
    Flow,
    Mixed,
    Mixing,
    RowList,
    State,
    ValueList,
    axis,
    axis_size,
)
from anabranch_graph_opt.row_rules.joining import joined_data
from anabranch_graph_opt.row_visit import Rule, Visit, counted
from anabranch_graph_opt.sizes import Size

__all__ = ["RULES"]


def _items(visit: Visit, index: int) -> tuple[State, ...]:
    state = visit.state(index)
    if not isinstance(state, ValueList):
        raise Mixing("uses a sequence whose items are not known one by one")
    return state.items


def _position(visit: Visit, index: int, count: int, default: int) -> int:
    if not visit.has(index):
        return default
    (position,) = visit.constants(index, "a position")
    if not -count <= position <= count:
        raise Mixing(f"uses item {position} of {count}")
    return position + count if position < 0 else position


def _empty(visit: Visit) -> Sequence[State]:
    return [ValueList(())]


def _construct(visit: Visit) -> Sequence[State]:
    return [ValueList(tuple(visit.state(i) for i in range(len(visit.states))))]


def _insert(visit: Visit) -> Sequence[State]:
    items = _items(visit, 0)
    if visit.facts.loops and visit.has(2):
        raise Mixing("inserts at a given place inside a loop")
    position = _position(visit, 2, len(items), len(items))
    return [ValueList((*items[:position], visit.state(1), *items[position:]))]


def _erase(visit: Visit) -> Sequence[State]:
    items = _items(visit, 0)
    position = _position(visit, 1, len(items), len(items) - 1)
    return [ValueList((*items[:position], *items[position + 1 :]))]


def _at(visit: Visit) -> Sequence[State]:
    items = _items(visit, 0)
    position = _position(visit, 1, len(items), 0)
    if position >= len(items):
        raise Mixing(f"uses item {position} of {len(items)}")
    return [items[position]]


def _concatenated(visit: Visit) -> Sequence[State]:
    state = visit.state(0)
    stacked = bool(visit.integer("new_axis", 0))
    if isinstance(state, RowList):
        return [_rows_laid_out(visit, state, stacked)]
    flows = []
    for item in _items(visit, 0):
        if isinstance(item, Mixed):
            return [item]
        if not isinstance(item, Flow) or not item.is_data:
            raise Mixing("concatenates what is no data")
        flows.append(item)
    if not flows:
        raise Mixing("concatenates an empty sequence")
    where = counted(visit.integer("axis", 0), flows[0].rank + stacked)
    if stacked:
        flows = [flow.with_axes([*flow.axes[:where], (), *flow.axes[where:]]) for flow in flows]
    plain_flows = [Flow(f.axes, f.current, f.same) for f in flows]
    return [joined_data(plain_flows, where)]


def _rows_laid_out(visit: Visit, rows: RowList, stacked: bool) -> Flow:
    """The items of all rows one after another: the row is the outer factor of that axis."""
    row = Factor(Size.of(rows.space.atom), rows.space)
    where = counted(visit.integer("axis", 0), rows.item.rank + stacked)
    axes: list[Axis] = list(rows.item.axes)
    if stacked:
        axes.insert(where, (row,))
    else:
        axes[where] = axis((row, *axes[where]))
    return Flow(tuple(axes))


def _split_to_sequence(visit: Visit) -> Sequence[State]:
    """Only the common form: an axis of known size cut into slices of one."""
    data = visit.data(0)
    where = visit.axis(data.rank, 0)
    visit.off_rows(0, [where], "splits")
    if visit.has(1):
        raise Mixing("splits into parts of given sizes")
    size = axis_size(data.axes[where]).constant
    if size is None:
        raise Mixing("splits an axis of unknown size")
    keep = bool(visit.integer("keepdims", 1))
    axes = [() if i == where else f for i, f in enumerate(data.axes) if keep or i != where]
    return [ValueList((Flow(tuple(axes), data.current, data.same),) * size)]


RULES: Final[Mapping[str, Rule]] = {
    "SequenceEmpty": _empty,
    "SequenceConstruct": _construct,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceAt": _at,
    "SplitToSequence": _split_to_sequence,
    "ConcatFromSequence": _concatenated,
}
