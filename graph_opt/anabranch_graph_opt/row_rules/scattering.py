"""Operators that write elements by index: each row may be written only with what is its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch_graph_opt.flow import (
    Flow,
    Mixing,
    Pointer,
    Space,
    State,
    Steps,
    axis_size,
    space_of,
)
from anabranch_graph_opt.row_facts import relabelled
from anabranch_graph_opt.row_rules.broadcasting import carried_by, same_carrier
from anabranch_graph_opt.row_rules.joining import pointed
from anabranch_graph_opt.row_rules.lookups import coordinates
from anabranch_graph_opt.row_visit import Rule, Visit

__all__ = ["RULES"]


def _scatter_elements(visit: Visit) -> Sequence[State]:
    raw = [visit.flow(i) for i in range(3)]
    if any(isinstance(flow.meaning, Pointer | Steps) for flow in raw):
        if visit.node.attributes.get_string("reduction", "none") != "none":
            raise Mixing("adds up at positions in the batch")
        return [_inverted(*raw)]
    flows = same_carrier([visit.data(i) for i in range(3)])
    target, ids, updates = flows
    where = visit.axis(target.rank, 0)
    visit.off_rows(0, [where], "writes entries along")
    for part in (ids, updates):
        if part.rank != target.rank:
            raise Mixing("has indices of another rank than its data")
        for i, (own, written) in enumerate(zip(target.axes, part.axes, strict=True)):
            if own != written and {space_of(own), space_of(written)} != {None}:
                raise Mixing(f"writes entries of some rows only, along axis {i}")
    return [carried_by(target.axes, flows)]


def _inverted(target: Flow, ids: Flow, updates: Flow) -> Flow:
    """The inverse of a permutation: where a sorted row stood before, write where it stands now."""
    space, into = ids.space, pointed(ids)
    if space is None or into is None or space.sorted_from != into or ids.rank != 1:
        raise Mixing("writes to positions in the batch")
    here = relabelled(updates, space)
    filled = relabelled(target, space)
    if here is None or filled is None or pointed(here) != space or here.rank != 1:
        raise Mixing("writes to positions in the batch")
    if filled.rank != 1 or not (here.axes == ids.axes == filled.axes):
        raise Mixing("writes to positions in the batch")
    row = ids.axes[0][0]
    return Flow(((replace(row, space=into),),), meaning=Pointer((space,)))


def _scatter_nd(visit: Visit) -> Sequence[State]:
    ids = visit.flow(1)
    depth = axis_size(ids.axes[-1]).constant if ids.rank else None
    if depth is None:
        raise Mixing("has indices of unknown depth")
    if isinstance(ids.meaning, Pointer | Steps):
        return [_written_rows(visit, ids, depth)]
    flows = same_carrier([visit.data(i) for i in range(3)])
    target, ids, updates = flows
    if ids.space is not None:
        raise Mixing(f"writes to places that {visit.name(1)} names for each row")
    visit.off_rows(0, range(depth), "writes entries along")
    _check_updates(target, ids, updates, depth)
    return [carried_by(target.axes, [target, updates])]


def _check_updates(target: Flow, ids: Flow, updates: Flow, depth: int) -> None:
    expected = (*ids.axes[:-1], *target.axes[depth:])
    if len(expected) != updates.rank:
        raise Mixing("has updates of another rank than its indices ask for")
    for own, written in zip(expected, updates.axes, strict=True):
        if own != written and {space_of(own), space_of(written)} != {None}:
            raise Mixing("writes updates of some rows to others")


def _written_rows(visit: Visit, ids: Flow, depth: int) -> Flow:
    """Rows written at their own places: a coordinate of the indices says whose place it is."""
    target, updates = visit.data(0), visit.data(2)
    into = coordinates(ids, depth)
    row_axis = target.row_axis
    own: Space | None = target.space
    if row_axis is None or own is None or row_axis >= depth or len(target.axes[row_axis]) != 1:
        raise Mixing("writes to positions in the batch")
    if any((space is not None) != (i == row_axis) for i, space in enumerate(into)):
        raise Mixing("writes to positions in the batch")
    if into[row_axis] != own:
        raise Mixing("writes rows to positions in another order or selection")
    updates = relabelled(updates, ids.space) or updates if ids.space is not None else updates
    _check_updates(target, replace(ids, meaning=None), updates, depth)
    if updates.current:
        raise Mixing("writes the row that a loop is at to all rows")
    return replace(target, same=False, number=None)


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("ScatterElements", "Scatter"), _scatter_elements),
    "ScatterND": _scatter_nd,
}
