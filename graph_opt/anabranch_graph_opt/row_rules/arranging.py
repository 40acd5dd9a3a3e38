"""Axes dropped, added, turned or repeated: the row factor goes where they put it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch_graph_opt.flow import (
    Axis,
    Flow,
    Mixing,
    Pointer,
    State,
    Steps,
    axis,
    axis_size,
    plain,
    pointer,
    space_of,
)
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_visit import Rule, Visit, counted
from anabranch_graph_opt.sizes import ONE, Size

__all__ = ["RULES"]


def _plain_data(flow: Flow) -> Flow:
    """The flow without the meaning of its elements, which must be data.

    Raises:
        Mixing: the elements count rows.
    """
    if not flow.is_data:
        raise Mixing("repeats or reorders the number of rows")
    return replace(flow, meaning=None, comparison=None)


def _squeeze(visit: Visit) -> Sequence[State]:
    flow = visit.flow(0)
    axes = visit.axes(flow.rank, 1)
    if axes is None:
        axes = tuple(i for i in range(flow.rank) if _is_one(visit.facts, flow.axes[i]))
    for dropped in axes:
        if space_of(flow.axes[dropped]) is not None:
            raise Mixing(f"squeezes axis {dropped} of {visit.name(0)}, which holds the rows")
    return [_renumbered(flow, [i for i in range(flow.rank) if i not in axes])]


def _is_one(facts: Facts, factors: Axis) -> bool:
    """Whether a squeeze of all axes drops this one.

    Raises:
        Mixing: it does so for some batches only.
    """
    one = facts.zero(axis_size(factors) - ONE)
    if one is None:
        raise Mixing(f"squeezes an axis of {axis_size(factors)} entries only where that is 1")
    return one


def _unsqueeze(visit: Visit) -> Sequence[State]:
    flow = visit.flow(0)
    given = visit.integers("axes") or visit.constants(1, "axes")
    rank = flow.rank + len(given)
    axes = {counted(a, rank) for a in given}
    rest = iter(range(flow.rank))
    return [_renumbered(flow, [None if i in axes else next(rest) for i in range(rank)])]


def _transpose(visit: Visit) -> Sequence[State]:
    flow = visit.flow(0)
    order = visit.integers("perm") or tuple(reversed(range(flow.rank)))
    return [_renumbered(flow, list(order))]


def _renumbered(flow: Flow, order: Sequence[int | None]) -> Flow:
    """The flow with old axis `order[i]` as axis i; None for a new axis of size 1."""
    axes = [() if old is None else flow.axes[old] for old in order]
    meaning = flow.meaning
    if isinstance(meaning, Pointer) and meaning.along is not None:
        along = order.index(meaning.along) if meaning.along in order else None
        into = meaning.into if along is not None else meaning.into[:1]
        return replace(flow, axes=tuple(axes), meaning=pointer(into, along))
    kept = [old for old in order if old is not None]
    if flow.numbers is not None and kept != sorted(kept):
        flow = _plain_data(flow)
    return flow.with_axes(axes)


def _expanded(facts: Facts, flow: Flow, sizes: Sequence[Size]) -> Flow:
    """The flow broadcast to at least `sizes`.

    Raises:
        Mixing: rows would meet an axis that does not hold them, or a second axis would hold rows.
    """
    if flow.numbers is not None:
        flow = _plain_data(flow)
    rank = max(flow.rank, len(sizes))
    own: list[Axis] = [()] * (rank - flow.rank) + list(flow.axes)
    wanted = [ONE] * (rank - len(sizes)) + list(sizes)
    axes: list[Axis] = []
    for factors, size in zip(own, wanted, strict=True):
        if size == ONE or axis_size(factors) == size:
            axes.append(factors)
        elif not factors:
            axes.append(facts.factors(size))
        elif space_of(factors) is not None or size.counts_rows:
            raise Mixing(f"expands an axis of {axis_size(factors)} to {size} (N rows)")
        elif size.constant is not None or axis_size(factors).constant is not None:
            axes.append(plain(size) if size.constant is not None else factors)
        else:
            axes.append(plain(facts.unknown()))
    before = sum(space_of(factors) is not None for factors in own)
    after = sum(space_of(factors) is not None for factors in axes)
    if after > before and flow.current:
        raise Mixing("spreads the row that a loop is at over all rows")
    if after > 1:
        raise Mixing("pairs rows with rows")
    return replace(flow, axes=tuple(axes), same=flow.same or after > before)


def _expand(visit: Visit) -> Sequence[State]:
    target = visit.flow(1).numbers
    if target is None:
        raise Mixing(f"takes its shape {visit.name(1)} from numbers that are not followed")
    flow = visit.flow(0)
    along = flow.meaning.along if isinstance(flow.meaning, Pointer) else None
    if along is not None or (isinstance(flow.meaning, Steps) and flow.space is None):
        raise Mixing("repeats positions in the batch")
    return [_expanded(visit.facts, flow, target)]


def _tile(visit: Visit) -> Sequence[State]:
    flow, repeats = visit.data(0), visit.flow(1).numbers
    if repeats is None or len(repeats) != flow.rank:
        raise Mixing(f"takes its repeats {visit.name(1)} from numbers that are not followed")
    axes, rows_made = [], False
    for factors, count in zip(flow.axes, repeats, strict=True):
        outer = visit.facts.factors(count)
        rows_made = rows_made or space_of(outer) is not None
        axes.append(axis(outer + factors))
        if sum(factor.space is not None for factor in axes[-1]) > 1:
            raise Mixing("pairs rows with rows")
    if rows_made and (flow.current or flow.space is not None):
        raise Mixing("pairs rows with rows")
    return [replace(flow, axes=tuple(axes), same=flow.same or rows_made)]


RULES: Final[Mapping[str, Rule]] = {
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
}
