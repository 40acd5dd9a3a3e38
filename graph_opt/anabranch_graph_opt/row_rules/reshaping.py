"""Reshapes: row-major factors are cut into other axes, and no cut may go through the rows."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch_graph_opt.flow import (
    Axis,
    Factor,
    Flow,
    Mixing,
    Pointer,
    State,
    Steps,
    axis,
    axis_size,
    plain,
    space_of,
)
from anabranch_graph_opt.row_visit import Rule, Visit
from anabranch_graph_opt.sizes import ONE, Size, product

__all__ = ["RULES"]


def _regrouped(axes: Sequence[Axis], sizes: Sequence[Size]) -> list[Axis]:
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
    rest = iter(sizes)
    for size in rest:
        outer = before.over(size)
        if outer is not None:  # this axis lies before the rows, or has size 1
            before = outer
            result.append(plain(size))
            continue
        inner = size.over(before * row.size)
        if inner is None or inner.counts_rows or after.over(inner) is None:
            raise Mixing(_through(axes, sizes))
        result.append(axis([Factor(before), row, Factor(inner)]))
        break
    inside = list(rest)
    if any(size.counts_rows for size in inside):
        raise Mixing(_through(axes, sizes))
    result += [plain(size) for size in inside]
    if all(space_of(factors) is None for factors in result):
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
    sizes = _completed(visit, flow, target)
    if isinstance(flow.meaning, Steps) and flow.space is None:
        return [_stepped(flow, sizes)]
    if isinstance(flow.meaning, Pointer) and flow.meaning.along is not None:
        raise Mixing("rearranges coordinates of positions in the batch")
    return [flow.with_axes(_regrouped(flow.axes, sizes))]


def _completed(visit: Visit, flow: Flow, target: Sequence[Size]) -> list[Size]:
    """Sizes to reshape to, with 0 (as before) and -1 (the rest) replaced."""
    sizes = list(target)
    if not visit.integer("allowzero", 0):
        sizes = [
            axis_size(flow.axes[i]) if size.constant == 0 else size for i, size in enumerate(sizes)
        ]
    open_places = [i for i, size in enumerate(sizes) if size.constant == -1]
    if not open_places:
        return sizes
    total = product(axis_size(factors) for factors in flow.axes)
    known = product(size for i, size in enumerate(sizes) if i not in open_places)
    rest = total.over(known)
    if rest is None:
        if flow.space is not None or total.counts_rows or known.counts_rows:
            raise Mixing(_through(flow.axes, sizes))
        rest = visit.facts.unknown()
    sizes[open_places[0]] = rest
    return sizes


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


RULES: Final[Mapping[str, Rule]] = {"Reshape": _reshape, "Flatten": _flatten}
