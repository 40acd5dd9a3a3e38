"""Quantised values: rows stay apart where scales are fixed, and mix where the batch sets them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch_graph_opt.flow import Mixing, State
from anabranch_graph_opt.row_visit import Rule, Visit

__all__ = ["RULES"]


def _scaled(visit: Visit) -> Sequence[State]:
    """`QuantizeLinear` and back: one scale, or one for each entry of an axis without rows."""
    data = visit.data(0)
    for i in (1, 2):
        if not visit.has(i):
            continue
        parameter = visit.fixed(i)
        if parameter.rank == 1 and parameter.axes[0]:
            visit.off_rows(0, [visit.axis(data.rank, 1)], "has one scale for each entry of")
        elif parameter.rank > 1:
            raise Mixing("scales by blocks")
    return [replace(data, number=None)]


def _dynamic(visit: Visit) -> Sequence[State]:
    if visit.data(0).space is not None:
        raise Mixing("takes its scale from the whole batch, so every row changes the others")
    return [visit.data(0), replace(visit.data(0), axes=()), replace(visit.data(0), axes=())]


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _scaled),
    "DynamicQuantizeLinear": _dynamic,
}
