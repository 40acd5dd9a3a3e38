"""Operators that combine the elements along some axes: rows are safe on the other axes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch_graph_opt.flow import (
    Factor,
    Flow,
    Mixing,
    Numbers,
    Pointer,
    State,
    axis_size,
    plain,
)
from anabranch_graph_opt.row_rules.broadcasting import carried_by
from anabranch_graph_opt.row_visit import Rule, Visit, counted
from anabranch_graph_opt.sizes import ZERO, Size, product

__all__ = ["RULES"]

_NAMES: Final = {
    "ReduceMax": "takes the maximum over",
    "ReduceMin": "takes the minimum over",
    "ReduceMean": "averages over",
    "ReduceSum": "sums over",
}


def _reduce(visit: Visit) -> Sequence[State]:
    flow = visit.flow(0)
    axes = visit.axes(flow.rank, 1)
    if not axes:
        if visit.integer("noop_with_empty_axes", 0):
            return [flow]
        axes = tuple(range(flow.rank))
    if (total := _REDUCED_NUMBERS.get(visit.op)) and flow.numbers is not None and flow.rank == 1:
        keep = ((),) if visit.integer("keepdims", 1) else ()
        return [Flow(keep, meaning=Numbers((total(flow.numbers),), flow.kind or "int"))]
    data = visit.data(0)
    visit.off_rows(0, axes, _NAMES.get(visit.op, "combines the elements along"))
    return [_without(data, axes, bool(visit.integer("keepdims", 1)))]


def _without(flow: Flow, axes: Sequence[int], keep: bool) -> Flow:
    kept = [
        () if i in axes else factors for i, factors in enumerate(flow.axes) if keep or i not in axes
    ]
    return replace(flow, axes=tuple(kept), number=None)


_REDUCED_NUMBERS: Final[Mapping[str, Callable[[Sequence[Size]], Size]]] = {
    "ReduceProd": product,
    "ReduceSum": lambda sizes: sum(sizes, start=ZERO),
}


def _arg_extreme(visit: Visit) -> Sequence[State]:
    data = visit.data(0)
    where = visit.axis(data.rank, 0)
    visit.off_rows(0, [where], "finds the largest or smallest along")
    return [_without(data, [where], bool(visit.integer("keepdims", 1)))]


def _normalized(visit: Visit) -> Sequence[State]:
    """`Softmax` and its kin: along one axis, or before version 13 along all from that one on."""
    data = visit.data(0)
    if visit.opset >= 13:
        where = [visit.axis(data.rank, -1)]
    else:
        where = list(range(visit.axis(data.rank, 1), data.rank))
    visit.off_rows(0, where, "normalises along")
    return [replace(data, number=None)]


def _along(default: int) -> Rule:
    def rule(visit: Visit) -> Sequence[State]:
        data = visit.data(0)
        visit.off_rows(0, [visit.axis(data.rank, default)], "normalises along")
        return [replace(data, number=None)]

    return rule


def _layer_normalized(visit: Visit) -> Sequence[State]:
    """Over all axes from `axis` on; mean and deviation keep these axes with size 1."""
    data = visit.data(0)
    first = visit.axis(data.rank, -1)
    over = range(first, data.rank)
    visit.off_rows(0, over, "normalises along")
    for i in range(1, len(visit.states)):
        if visit.has(i):
            visit.fixed(i)
    statistics = _without(data, over, keep=True)
    return [replace(data, number=None), statistics, statistics]


def _batch_normalized(visit: Visit) -> Sequence[State]:
    data = visit.data(0)
    if visit.integer("training_mode", 0) or len(visit.node.outputs) > 1:
        raise Mixing("is in training mode: it normalises with the statistics of the batch")
    for i in range(1, 5):
        visit.fixed(i)
    scaled = [1] if visit.opset >= 9 else range(1, data.rank)
    visit.off_rows(0, scaled, "has one scale for each entry of")
    return [replace(data, number=None)]


def _sample_normalized(visit: Visit) -> Sequence[State]:
    """Statistics over channels and positions of one sample: axis 0 stays apart."""
    data = visit.data(0)
    visit.off_rows(0, range(1, data.rank), "normalises along")
    for i in range(1, len(visit.states)):
        visit.fixed(i)
    return [replace(data, number=None)]


def _mean_variance_normalized(visit: Visit) -> Sequence[State]:
    data = visit.data(0)
    given = visit.integers("axes") or (0, 2, 3)
    visit.off_rows(0, [counted(a, data.rank) for a in given], "normalises along")
    return [replace(data, number=None)]


def _accumulated(visit: Visit) -> Sequence[State]:
    data = visit.data(0)
    (where,) = visit.constants(1, "axis")
    visit.off_rows(0, [counted(where, data.rank)], "adds up along")
    return [replace(data, number=None)]


def _top(visit: Visit) -> Sequence[State]:
    flow = visit.flow(0)
    data = visit.data(0)
    where = visit.axis(flow.rank, -1)
    if visit.has(1):
        numbers = visit.flow(1).numbers
        if numbers is None:
            visit.fixed(1)
        count = numbers[0] if numbers is not None else visit.facts.unknown()
    else:
        count = Size.of(visit.integer("k", 0))
    if flow.row_axis == where:
        return _sorted_rows(visit, data, count)
    if count.counts_rows:
        raise Mixing("keeps as many elements as there are rows")
    axes = [plain(count) if i == where else factors for i, factors in enumerate(data.axes)]
    kept = carried_by(axes, [data])
    return [kept, kept]


def _sorted_rows(visit: Visit, data: Flow, count: Size) -> Sequence[State]:
    """All rows in an order given by one number each: they are moved, not mixed."""
    space = data.space
    if (
        space is None
        or data.rank != 1
        or len(data.axes[0]) != 1
        or count != axis_size(data.axes[0])
    ):
        raise Mixing(f"keeps the largest along an axis of {visit.name(0)} that holds the rows")
    order = visit.facts.sorted(space, visit.number)
    factors = (Factor(Size.of(order.atom), order),)
    moved = Flow((factors,))
    return [moved, replace(moved, meaning=Pointer((space,)))]


_REDUCTIONS: Final = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg_extreme),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _normalized),
    "LpNormalization": _along(-1),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_normalized),
    "BatchNormalization": _batch_normalized,
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization", "LRN"), _sample_normalized),
    "MeanVarianceNormalization": _mean_variance_normalized,
    "CumSum": _accumulated,
    "TopK": _top,
}
