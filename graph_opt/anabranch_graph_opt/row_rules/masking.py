"""Masks of square matrices, and entries kept by a constant mask."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch_graph_opt.flow import Mixing, State, plain
from anabranch_graph_opt.row_visit import Rule, Visit, counted

__all__ = ["RULES"]


def _triangle(visit: Visit) -> Sequence[State]:
    """`Trilu`: where an element is kept depends on its place in the last two axes."""
    data = visit.data(0)
    if visit.has(1):
        visit.fixed(1)
    visit.off_rows(0, [data.rank - 2, data.rank - 1], "masks a triangle along")
    return [replace(data, number=None)]


def _identity_matrix(visit: Visit) -> Sequence[State]:
    data = visit.data(0)
    visit.off_rows(0, range(data.rank), "makes an identity matrix along")
    return [replace(data, current=False, number=None)]


def _compressed(visit: Visit) -> Sequence[State]:
    """`Compress`: the mask is no row's data, so all rows keep the same entries."""
    data = visit.data(0)
    visit.fixed(1)
    if "axis" not in visit.node.attributes:
        if data.space is not None:
            raise Mixing(f"flattens {visit.name(0)}, which holds the rows")
        return [replace(data, axes=(plain(visit.facts.unknown()),))]
    where = counted(visit.integer("axis", 0), data.rank)
    visit.off_rows(0, [where], "picks entries along")
    axes = [plain(visit.facts.unknown()) if i == where else f for i, f in enumerate(data.axes)]
    return [replace(data, axes=tuple(axes))]


RULES: Final[Mapping[str, Rule]] = {
    "Trilu": _triangle,
    "EyeLike": _identity_matrix,
    "Compress": _compressed,
}
