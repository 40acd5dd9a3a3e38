"""Operators that fetch elements by index: rows may be fetched by position only where that follows.

Ids of rows looked up in a weight keep rows apart. Rows themselves are fetched soundly in three
ways: along another axis; by a `Pointer`, which says whose row stands where; and in a loop, by its
index.
"""

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
from anabranch_graph_opt.row_facts import Facts, relabelled
from anabranch_graph_opt.row_rules.broadcasting import carried_by, same_carrier
from anabranch_graph_opt.row_rules.joining import pointed
from anabranch_graph_opt.row_visit import Rule, Visit
from anabranch_graph_opt.sizes import Size

__all__ = ["RULES", "coordinates"]


def _gather(visit: Visit) -> Sequence[State]:
    table, ids = visit.flow(0), visit.flow(1)
    where = visit.axis(table.rank, 0)
    if table.numbers is not None and table.rank == 1 and ids.constants is not None:
        return [_picked_numbers(table, ids)]
    if isinstance(table.meaning, Steps):
        return [_picked_step(visit.facts, table, ids)]
    if isinstance(table.meaning, Pointer) and table.meaning.along == where:
        return [_picked_coordinates(table, ids, where)]
    holds_rows = space_of(table.axes[where]) is not None
    if holds_rows and ids.numbers is not None and len(ids.numbers) == 1:
        return [_row_of_loop(visit, table, ids, where)]
    if isinstance(ids.meaning, Pointer | Steps):
        return [_fetched_rows(visit, table, ids, where)]
    visit.off_rows(0, [where], "picks entries along")
    table, ids = same_carrier([visit.data(0), visit.data(1)])
    axes = [*table.axes[:where], *ids.axes, *table.axes[where + 1 :]]
    return [carried_by(axes, [table, ids])]


def _picked_numbers(table: Flow, ids: Flow) -> Flow:
    numbers = table.numbers or ()
    picked = tuple(numbers[i] for i in ids.constants or ())
    return Flow(ids.axes, meaning=Numbers(picked, table.kind or "int"))


def _picked_step(facts: Facts, table: Flow, ids: Flow) -> Flow:
    """The start or end of the bag that a loop is at."""
    meaning, index = table.meaning, ids.numbers
    if not isinstance(meaning, Steps) or index is None or len(index) != 1 or table.rank != 1:
        raise Mixing("picks from positions in the batch")
    if not facts.within(index[0], axis_size(table.axes[0])):
        raise Mixing("picks from positions in the batch")
    return Flow(ids.axes, meaning=Numbers((meaning.first + meaning.step * index[0],)))


def _picked_coordinates(table: Flow, ids: Flow, where: int) -> Flow:
    """Some of the coordinates of a pointer, by constant number."""
    meaning, picked = table.meaning, ids.constants
    if not isinstance(meaning, Pointer) or picked is None or ids.rank > 1:
        raise Mixing("picks from positions in the batch")
    into = tuple(meaning.into[i] for i in picked)
    axes = [*table.axes[:where], *ids.axes, *table.axes[where + 1 :]]
    return replace(table, axes=tuple(axes), meaning=pointer(into, where if ids.rank else None))


def _row_of_loop(visit: Visit, table: Flow, ids: Flow, where: int) -> Flow:
    at = visit.facts.loop_index(table.space)
    factors = table.axes[where]
    if at is None or ids.numbers != (at,) or len(factors) != 1:
        raise Mixing(f"picks entries along axis {where} of {visit.name(0)}, which holds the rows")
    data = visit.data(0)
    axes = [*data.axes[:where], *ids.axes, *data.axes[where + 1 :]]
    return replace(data, axes=tuple(axes), current=True, same=False, number=None)


def _fetched_rows(visit: Visit, table: Flow, ids: Flow, where: int) -> Flow:
    """Rows fetched by pointer, or pointers by pointer: then they point from the new rows."""
    space = table.space
    if space is not None and isinstance(ids.meaning, Steps):
        ids = relabelled(ids, space) or ids
    if space is None or pointed(ids) != space or table.axes[where] != _only(space):
        raise Mixing(f"looks {visit.name(0)} up by positions in the batch")
    if isinstance(table.meaning, Pointer | Numbers) and pointed(table) is None:
        raise Mixing("rearranges coordinates of positions in the batch")
    axes = [*table.axes[:where], *ids.axes, *table.axes[where + 1 :]]
    fetched = carried_by(axes, [replace(ids, meaning=None, same=False)])
    return replace(fetched, meaning=table.meaning, same=table.same, number=None)


def _only(space: Space) -> Axis:
    return (Factor(Size.of(space.atom), space),)


def _gather_elements(visit: Visit) -> Sequence[State]:
    table, ids = same_carrier([visit.data(0), visit.data(1)])
    where = visit.axis(table.rank, 0)
    visit.off_rows(0, [where], "picks entries along")
    if table.rank != ids.rank:
        raise Mixing("has indices of another rank than its data")
    for i, (own, wanted) in enumerate(zip(table.axes, ids.axes, strict=True)):
        if i != where and own != wanted and {space_of(own), space_of(wanted)} != {None}:
            raise Mixing("picks entries of some rows only")
    return [carried_by(ids.axes, [table, ids])]


def _gather_nd(visit: Visit) -> Sequence[State]:
    batch = visit.integer("batch_dims", 0)
    ids = visit.flow(1)
    depth = axis_size(ids.axes[-1]).constant if ids.rank else None
    if depth is None:
        raise Mixing("has indices of unknown depth")
    if ids.meaning is not None and ids.numbers is None:
        if batch:
            raise Mixing("looks up by positions in the batch")
        return [_fetched_entries(visit, visit.data(0), ids, depth)]
    table, ids = same_carrier([visit.data(0), visit.data(1)])
    visit.off_rows(0, range(batch, batch + depth), "picks entries along")
    for own, wanted in zip(table.axes[:batch], ids.axes[:batch], strict=True):
        if own != wanted and {space_of(own), space_of(wanted)} != {None}:
            raise Mixing("picks entries of some rows only")
    if space_of(ids.axes[-1]) is not None:
        raise Mixing("takes the rows for coordinates")
    return [carried_by([*ids.axes[:-1], *table.axes[batch + depth :]], [table, ids])]


def _fetched_entries(visit: Visit, table: Flow, ids: Flow, depth: int) -> Flow:
    """Entries at coordinates of which one says whose row it is."""
    into = coordinates(ids, depth)
    row_axis, space = table.row_axis, table.space
    if (
        row_axis is None
        or space is None
        or row_axis >= depth
        or table.axes[row_axis] != _only(space)
    ):
        raise Mixing(f"looks {visit.name(0)} up by positions in the batch")
    if any((target is not None) != (i == row_axis) for i, target in enumerate(into)):
        raise Mixing(f"looks {visit.name(0)} up by positions in the batch")
    if into[row_axis] != space:
        raise Mixing("looks rows up by positions in another order or selection")
    axes = [*ids.axes[:-1], *table.axes[depth:]]
    return replace(carried_by(axes, [replace(ids, meaning=None)]), same=False)


def coordinates(ids: Flow, depth: int) -> tuple[Space | None, ...]:
    """For each index along the last axis the space it points into; None for ordinary numbers.

    Raises:
        Mixing: the coordinates are not told apart along the last axis.
    """
    meaning = ids.meaning
    if (
        isinstance(meaning, Pointer)
        and meaning.along == ids.rank - 1
        and len(meaning.into) == depth
    ):
        return meaning.into
    if depth == 1 and (space := pointed(ids)) is not None:
        return (space,)
    raise Mixing("looks up by positions in the batch")


def _nonzero(visit: Visit) -> Sequence[State]:
    """Coordinates of what is not zero: of whole rows, where one scalar a row decides."""
    mask = visit.data(0)
    if mask.space is None:
        if mask.current:
            raise Mixing("finds elements of one row")
        return [Flow((plain(mask.rank), plain(visit.facts.unknown())))]
    if mask.number is None:
        raise Mixing(f"lists elements of all rows of {visit.name(0)} one after another")
    selected = visit.facts.selected(mask.number)
    found = axis(
        Factor(Size.of(selected.atom), selected) if factor.space is not None else factor
        for factors in mask.axes
        for factor in factors
    )
    if any(len(factors) != 1 for factors in mask.axes if space_of(factors) is not None):
        raise Mixing(f"lists elements of all rows of {visit.name(0)} one after another")
    into = tuple(space_of(factors) for factors in mask.axes)
    return [Flow((plain(mask.rank), found), meaning=Pointer(into, 0))]


RULES: Final[Mapping[str, Rule]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": _nonzero,
}
