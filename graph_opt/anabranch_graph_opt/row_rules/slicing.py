"""Operators that take or add parts along axes: rows are safe where the axis does not hold them.

A slice of the row factor is understood in two cases: when it takes everything, and in a loop over
rows, when it takes exactly the entries of the row that the loop is at (the bag of an EmbeddingBag).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch_graph_opt.flow import (
    Axis,
    Flow,
    Mixing,
    Numbers,
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
from anabranch_graph_opt.sizes import ONE, ZERO, Size

__all__ = ["RULES"]

_FAR: Final = 2**31 - 1
"""Ends at least this large mean "to the end"."""

Bounds = tuple[Size | None, Size | None, int | None]
"""Start, end and step of a slice; None where they are not followed."""


def _slice(visit: Visit) -> Sequence[State]:
    flow = visit.flow(0)
    bounds = _bounds(visit, flow.rank)
    if flow.numbers is not None and flow.rank == 1:
        return [_sliced_numbers(visit, flow, bounds)]
    if isinstance(flow.meaning, Steps):
        return [_sliced_steps(visit.facts, flow, bounds)]
    if flow.numbers is not None:
        flow = visit.data(0)
    for where, bound in bounds.items():
        flow = _sliced(visit, flow, where, bound)
    return [flow]


def _bounds(visit: Visit, rank: int) -> dict[int, Bounds]:
    """Axis -> bounds, from inputs or from the attributes of operator sets before 10."""
    if "starts" in visit.node.attributes:
        starts = _sizes(visit.integers("starts") or ())
        ends = _sizes(visit.integers("ends") or ())
        axes, steps = visit.integers("axes"), None
    else:
        starts, ends = _followed(visit, 1), _followed(visit, 2)
        axes = visit.constants(3, "axes") if visit.has(3) else None
        steps = visit.flow(4).constants if visit.has(4) else None
        if visit.has(4) and steps is None:
            raise Mixing(f"has steps {visit.name(4)} that are not constant")
    if axes is None:
        axes = tuple(range(len(starts)))
    if not len(starts) == len(ends) == len(axes):
        raise Mixing("has starts, ends and axes of different lengths")
    steps = steps or (1,) * len(starts)
    return {
        counted(a, rank): (start, end, step)
        for a, start, end, step in zip(axes, starts, ends, steps, strict=True)
    }


def _sizes(values: Sequence[int]) -> list[Size | None]:
    return [Size.of(value) for value in values]


def _followed(visit: Visit, index: int) -> list[Size | None]:
    """Bounds as sizes; bounds that are not followed must at least not depend on rows."""
    flow = visit.flow(index)
    if flow.numbers is not None:
        return list(flow.numbers)
    length = axis_size(visit.fixed(index).axes[0]).constant if flow.rank == 1 else None
    if length is None:
        raise Mixing(f"takes its bounds {visit.name(index)} from numbers that are not followed")
    return [None] * length


def _sliced_numbers(visit: Visit, flow: Flow, bounds: Mapping[int, Bounds]) -> Flow:
    numbers = flow.numbers or ()
    start, end, step = bounds.get(0, (ZERO, Size.of(_FAR), 1))
    first, last = (b.constant if b is not None else None for b in (start, end))
    if first is None or last is None or step is None:
        raise Mixing("takes a part of a shape by bounds that are not constant")
    stop = None if step < 0 and last < -len(numbers) else last
    kept = numbers[first:stop:step]
    return Flow((plain(len(kept)),), meaning=Numbers(kept, flow.kind or "int"))


def _sliced_steps(facts: Facts, flow: Flow, bounds: Mapping[int, Bounds]) -> Flow:
    """Starts without the first, ends, or the start of the bag that a loop is at."""
    meaning, length = flow.meaning, axis_size(flow.axes[0]) if flow.rank == 1 else None
    if not isinstance(meaning, Steps) or length is None or set(bounds) != {0}:
        raise Mixing("takes a part of positions in the batch")
    start, end, step = bounds[0]
    if start is None or end is None or step != 1:
        raise Mixing("takes a part of positions in the batch")
    first = meaning.first + meaning.step * start
    if end - start == ONE and facts.within(start, length):
        return Flow((plain(1),), meaning=Numbers((first,)))
    far = end.constant is not None and end.constant >= _FAR
    skipped = start.constant
    if skipped is None or skipped < 0 or not (far or end == length):
        raise Mixing("takes a part of positions in the batch")
    return replace(flow, axes=(plain(length - start),), meaning=Steps(first, meaning.step))


def _sliced(visit: Visit, flow: Flow, where: int, bounds: Bounds) -> Flow:
    factors = flow.axes[where]
    start, end, step = bounds
    length = axis_size(factors)
    if _takes_all(visit.facts, length, bounds):
        return flow
    if isinstance(flow.meaning, Pointer) and flow.meaning.along == where:
        return _sliced_coordinates(flow, where, bounds)
    if space_of(factors) is not None:
        return _sliced_rows(visit, flow, where, bounds)
    if any(b is not None and b.counts_rows for b in (start, end)):
        raise Mixing(f"takes a part of axis {where} of {visit.name(0)} by the number of rows")
    return _with_axis(flow, where, plain(_part(visit.facts, length, start, end, step)))


def _with_axis(flow: Flow, where: int, factors: Axis) -> Flow:
    return flow.with_axes(factors if i == where else own for i, own in enumerate(flow.axes))


def _takes_all(facts: Facts, length: Size, bounds: Bounds) -> bool:
    start, end, step = bounds
    if start is None or end is None or start != ZERO or step != 1:
        return False
    if end == length or (end.constant is not None and end.constant >= _FAR):
        return True
    return not length.counts_rows and facts.positive(end - length + ONE) is True


def _sliced_coordinates(flow: Flow, where: int, bounds: Bounds) -> Flow:
    meaning = flow.meaning
    first, last = (b.constant if b is not None else None for b in bounds[:2])
    if not isinstance(meaning, Pointer) or first is None or last is None or bounds[2] is None:
        raise Mixing("takes a part of positions in the batch")
    kept = meaning.into[first : last : bounds[2]]
    return replace(_with_axis(flow, where, plain(len(kept))), meaning=pointer(kept, where))


def _sliced_rows(visit: Visit, flow: Flow, where: int, bounds: Bounds) -> Flow:
    """The entries of one row, `width * index` to `width * (index + 1)`, in a loop over rows."""
    start, end, step = bounds
    factors = flow.axes[where]
    at = visit.facts.loop_index(flow.space)
    if factors[0].space is None or at is None or start is None or end is None or step != 1:
        raise Mixing(f"takes a part of axis {where} of {visit.name(0)}, which holds the rows")
    width = axis_size(factors[1:])
    if start != width * at or end != width * at + width:
        raise Mixing(f"takes a part of axis {where} of {visit.name(0)}, which holds the rows")
    return replace(
        _with_axis(visit.data(0) if flow.meaning is not None else flow, where, axis(factors[1:])),
        current=True,
        same=False,
        number=None,
    )


def _part(
    facts: Facts, length: Size, start: Size | None, end: Size | None, step: int | None
) -> Size:
    """Number of entries of a slice that does not touch rows."""
    if start is None or end is None or step is None:
        return facts.unknown()
    size, first, last = length.constant, start.constant, end.constant
    if size is not None and first is not None and last is not None:
        stop = None if step < 0 and last < -size else last
        return Size.of(len(range(size)[first:stop:step]))
    if step != 1:
        return facts.unknown()
    if first is not None and first >= 0 and last is not None and last >= _FAR:
        return _at_least_zero(facts, length - start)
    if first == 0 and last is not None and last < 0:
        return _at_least_zero(facts, length + end)
    if first == -1 and last is not None and last >= _FAR:
        return _at_least_zero(facts, ONE)
    return facts.unknown()


def _at_least_zero(facts: Facts, size: Size) -> Size:
    return size if facts.positive(size + ONE) else facts.unknown()


def _split(visit: Visit) -> Sequence[State]:
    flow = visit.flow(0)
    where, count = visit.axis(flow.rank, 0), len(visit.node.outputs)
    sizes = visit.integers("split")
    if sizes is None and visit.has(1):
        sizes = visit.constants(1, "sizes")
    factors = flow.axes[where]
    if space_of(factors) is not None:
        raise Mixing(f"splits axis {where} of {visit.name(0)}, which holds the rows")
    length = axis_size(factors).constant
    if sizes is None:
        if length is None:
            share = axis_size(factors).over(Size.of(count))
            return [_with_axis(visit.data(0), where, plain(share or visit.facts.unknown()))] * count
        chunk = -(-length // count)
        sizes = tuple(min(chunk, length - i * chunk) for i in range(count))
    if (flow.numbers is not None and flow.rank == 1) or isinstance(flow.meaning, Pointer):
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        return [
            _split_part(visit, flow, where, end - size, end)
            for size, end in zip(sizes, ends, strict=True)
        ]
    data = visit.data(0)
    return [_with_axis(data, where, plain(size)) for size in sizes]


def _split_part(visit: Visit, flow: Flow, where: int, start: int, end: int) -> Flow:
    bounds: Bounds = (Size.of(start), Size.of(end), 1)
    if flow.numbers is not None:
        return _sliced_numbers(visit, flow, {0: bounds})
    if isinstance(flow.meaning, Pointer) and flow.meaning.along == where:
        return _sliced_coordinates(flow, where, bounds)
    return _with_axis(flow, where, plain(end - start))


def _pad(visit: Visit) -> Sequence[State]:
    flow = visit.data(0)
    pads = visit.integers("pads") or visit.integers("paddings")
    if pads is None:
        pads = visit.constants(1, "pads")
    axes = visit.constants(3, "axes") if visit.has(3) else tuple(range(flow.rank))
    if visit.has(2):
        visit.fixed(2)
    half = len(pads) // 2
    for where, before, after in zip(axes, pads[:half], pads[half:], strict=True):
        if before == 0 and after == 0:
            continue
        where = counted(where, flow.rank)
        visit.off_rows(0, [where], "pads")
        size = axis_size(flow.axes[where]) + Size.of(before + after)
        flow = _with_axis(flow, where, plain(_at_least_zero(visit.facts, size)))
    return [flow]


RULES: Final[Mapping[str, Rule]] = {"Slice": _slice, "Split": _split, "Pad": _pad}
