"""Operators that move, repeat or drop elements by shape: the row factor goes where they put it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch_graph_opt.flow import (
    Axis,
    Factor,
    Flow,
    Mixing,
    Numbers,
    Pointer,
    Space,
    State,
    Steps,
    axis,
    axis_size,
    plain,
    pointer,
    space_of,
)
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_rules.broadcasting import carried_by, same_carrier
from anabranch_graph_opt.row_visit import Rule, Visit, counted
from anabranch_graph_opt.sizes import ONE, Size, product

__all__ = ["RULES", "expanded", "joined_data", "pointed", "regrouped"]


def rearranged(flow: Flow, axes: Sequence[Axis]) -> Flow:
    """The same elements in the same row-major order under other axes.

    Meaning is kept where it still says the same there.
    """
    if isinstance(flow.meaning, Pointer) and flow.meaning.along is not None:
        raise Mixing("rearranges coordinates of positions in the batch")
    return flow.with_axes(axes)


def _plain_data(flow: Flow) -> Flow:
    """The flow without the meaning of its elements, which must be data.

    Raises:
        Mixing: the elements count rows.
    """
    if not flow.is_data:
        raise Mixing("repeats or reorders the number of rows")
    return replace(flow, meaning=None, comparison=None)


def regrouped(facts: Facts, axes: Sequence[Axis], sizes: Sequence[Size]) -> list[Axis]:
    """Axes of a reshape: the row-major factors of `axes`, cut into axes of `sizes`.

    Raises:
        Mixing: a cut goes through the row factor, so that rows would end up in several entries.
    """
    factors = [factor for factors in axes for factor in factors]
    place = next((i for i, factor in enumerate(factors) if factor.space is not None), None)
    if place is None:
        for size in sizes:
            if size.counts_rows:
                raise Mixing(f"arranges data without rows in an axis of {size} (N rows)")
        return [plain(size) for size in sizes]
    row = factors[place]
    before = product(factor.size for factor in factors[:place])
    after = product(factor.size for factor in factors[place + 1 :])
    result: list[Axis] = []
    placed = False
    for size in sizes:
        if placed:
            if size.counts_rows:
                raise Mixing(_through(axes, sizes))
            result.append(plain(size))
            continue
        rest = before.over(size)
        if rest is not None and not (size == ONE and before == ONE):
            before = rest
            result.append(plain(size))
            continue
        if size == ONE:
            result.append(())
            continue
        inner = size.over(before * row.size)
        if inner is None or inner.counts_rows or after.over(inner) is None:
            raise Mixing(_through(axes, sizes))
        result.append(axis([Factor(before), row, Factor(inner)]))
        placed = True
    if not placed:
        raise Mixing(_through(axes, sizes))
    return result


def _through(axes: Sequence[Axis], sizes: Sequence[Size]) -> str:
    given = ", ".join(str(axis_size(factors)) for factors in axes)
    wanted = ", ".join(map(str, sizes))
    return f"cuts through rows: it makes [{wanted}] of [{given}] (N is the number of rows)"


def _reshape(visit: Visit) -> Sequence[State]:
    flow, target = visit.flow(0), visit.flow(1).numbers
    if target is None:
        if visit.data(1).current or visit.data(1).space is not None:
            raise Mixing(f"takes its shape {visit.name(1)} from the data of rows")
        raise Mixing(f"takes its shape {visit.name(1)} from numbers that are not followed")
    sizes = list(target)
    if not visit.integer("allowzero", 0):
        sizes = [
            axis_size(flow.axes[i]) if size.constant == 0 else size for i, size in enumerate(sizes)
        ]
    total = product(axis_size(factors) for factors in flow.axes)
    if any(size.constant == -1 for size in sizes):
        place = next(i for i, size in enumerate(sizes) if size.constant == -1)
        known = product(size for i, size in enumerate(sizes) if i != place)
        inferred = total.over(known)
        if inferred is None:
            if flow.space is not None or total.counts_rows or known.counts_rows:
                raise Mixing(_through(flow.axes, sizes))
            inferred = visit.facts.unknown()
        sizes[place] = inferred
    if isinstance(flow.meaning, Steps) and flow.space is None:
        return [_stepped(flow, sizes)]
    return [rearranged(flow, regrouped(visit.facts, flow.axes, sizes))]


def _stepped(flow: Flow, sizes: Sequence[Size]) -> Flow:
    """Steps that hold no rows (the N + 1 ends of N bags), with other axes of size 1 around."""
    wide = [factors for factors in flow.axes if factors]
    if len(wide) != 1 or [s for s in sizes if s != ONE] != [axis_size(wide[0])]:
        raise Mixing("cuts positions in the batch into several axes")
    return flow.with_axes(() if size == ONE else wide[0] for size in sizes)


def _flatten(visit: Visit) -> Sequence[State]:
    flow = visit.data(0)
    split = visit.integer("axis", 1)
    split = split + flow.rank if split < 0 else split
    before = axis(factor for factors in flow.axes[:split] for factor in factors)
    after = axis(factor for factors in flow.axes[split:] for factor in factors)
    return [flow.with_axes([before, after])]


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


def expanded(facts: Facts, flow: Flow, sizes: Sequence[Size]) -> Flow:
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
    if isinstance(flow.meaning, Pointer | Steps) and flow.space is None:
        raise Mixing("repeats positions in the batch")
    return [expanded(visit.facts, flow, target)]


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


def _concat(visit: Visit) -> Sequence[State]:
    flows = [visit.flow(i) for i in range(len(visit.states))]
    where = visit.axis(flows[0].rank, 1)
    if len(flows) == 1:
        return [flows[0]]
    if (joined := _joined_numbers(flows) or _joined_steps(flows)) is not None:
        return [joined]
    if any(isinstance(flow.meaning, Steps | Pointer) for flow in flows):
        return [_joined_pointers(visit, flows, where)]
    return [joined_data(visit.facts, [visit.data(i) for i in range(len(flows))], where)]


def joined_data(facts: Facts, flows: Sequence[Flow], where: int) -> Flow:
    """Claim on tensors laid one after another along axis `where`.

    Raises:
        Mixing: that axis holds rows in one of them, or only some of them hold rows.
    """
    flows = same_carrier(flows)
    if any(flow.rank != flows[0].rank for flow in flows):
        raise Mixing("concatenates tensors of different rank")
    if any(space_of(flow.axes[where]) is not None for flow in flows):
        raise Mixing(f"concatenates along axis {where}, which holds the rows")
    axes: list[Axis] = []
    for i in range(flows[0].rank):
        parts = [flow.axes[i] for flow in flows]
        if i == where:
            total = Size.of(0)
            for factors in parts:
                total = total + axis_size(factors)
            axes.append(plain(total))
        elif any(factors != parts[0] for factors in parts):
            if any(space_of(factors) is not None for factors in parts):
                raise Mixing("concatenates tensors with rows to tensors without")
            axes.append(parts[0])
        else:
            axes.append(parts[0])
    return carried_by(axes, flows)


def _joined_numbers(flows: Sequence[Flow]) -> Flow | None:
    if any(flow.numbers is None or flow.rank != 1 for flow in flows):
        return None
    values = tuple(value for flow in flows for value in flow.numbers or ())
    floating = any(isinstance(f.meaning, Numbers) and f.meaning.floating for f in flows)
    return Flow((plain(len(values)),), meaning=Numbers(values, floating))


def _joined_steps(flows: Sequence[Flow]) -> Flow | None:
    """Steps with the number that would come next appended: the end of the last bag."""
    if len(flows) != 2 or not isinstance(flows[0].meaning, Steps) or flows[0].rank != 1:
        return None
    steps, last = flows[0].meaning, flows[1].numbers
    length = axis_size(flows[0].axes[0])
    if last is None or len(last) != 1 or last[0] != steps.first + steps.step * length:
        return None
    return Flow((plain(length + ONE),), meaning=steps)


def _joined_pointers(visit: Visit, flows: Sequence[Flow], where: int) -> Flow:
    """Coordinates put together: positions in the batch beside ordinary indices."""
    for i, flow in enumerate(flows):
        if axis_size(flow.axes[where]) != ONE:
            raise Mixing("concatenates positions in the batch")
        if not isinstance(flow.meaning, Pointer | Steps):
            visit.data(i)
    flows = same_carrier(flows)
    into = tuple(pointed(flow) for flow in flows)
    if any(p is None and f.meaning is not None and f.numbers is None
           for p, f in zip(into, flows, strict=True)):  # fmt: skip
        raise Mixing("concatenates positions in the batch")
    joined = joined_data(visit.facts, [replace(flow, meaning=None) for flow in flows], where)
    return replace(joined, same=False, meaning=Pointer(into, where), number=None)


def pointed(flow: Flow) -> Space | None:
    """The space that every element of the flow points into; None where it is no pointer."""
    meaning = flow.meaning
    if isinstance(meaning, Pointer) and meaning.along is None:
        return meaning.into[0]
    if isinstance(meaning, Steps) and meaning.first.constant == 0 and meaning.step == ONE:
        return flow.space
    return None


RULES: Final[Mapping[str, Rule]] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
}
