"""Tensors laid one after another along an axis that holds no rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from anabranch_graph_opt.flow import (
    Axis,
    Flow,
    Mixing,
    Numbers,
    Pointer,
    Space,
    State,
    Steps,
    axis_size,
    plain,
    space_of,
)
from anabranch_graph_opt.row_rules.broadcasting import carried_by, same_carrier
from anabranch_graph_opt.row_visit import Rule, Visit
from anabranch_graph_opt.sizes import ONE, ZERO

__all__ = ["RULES", "joined_data", "pointed"]


def _concat(visit: Visit) -> Sequence[State]:
    flows = [visit.flow(i) for i in range(len(visit.states))]
    where = visit.axis(flows[0].rank, 1)
    if len(flows) == 1:
        return [flows[0]]
    if (joined := _joined_numbers(flows) or _joined_steps(flows)) is not None:
        return [joined]
    if any(isinstance(flow.meaning, Steps | Pointer) for flow in flows):
        return [_joined_pointers(visit, flows, where)]
    return [joined_data([visit.data(i) for i in range(len(flows))], where)]


def joined_data(flows: Sequence[Flow], where: int) -> Flow:
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
            axes.append(plain(sum((axis_size(factors) for factors in parts), start=ZERO)))
            continue
        if len({*parts}) > 1 and any(space_of(factors) is not None for factors in parts):
            raise Mixing("concatenates tensors with rows to tensors without")
        axes.append(parts[0])
    return carried_by(axes, flows)


def _joined_numbers(flows: Sequence[Flow]) -> Flow | None:
    if any(flow.numbers is None or flow.rank != 1 for flow in flows):
        return None
    values = tuple(value for flow in flows for value in flow.numbers or ())
    return Flow((plain(len(values)),), meaning=Numbers(values, flows[0].kind or "int"))


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
    for space, flow in zip(into, flows, strict=True):
        if space is None and isinstance(flow.meaning, Pointer | Steps):
            raise Mixing("concatenates positions in the batch")
    joined = joined_data([replace(flow, meaning=None) for flow in flows], where)
    return replace(joined, same=False, meaning=Pointer(into, where), number=None)


def pointed(flow: Flow) -> Space | None:
    """The space that every element of the flow points into; None where it is no pointer."""
    meaning = flow.meaning
    if isinstance(meaning, Pointer) and meaning.along is None:
        return meaning.into[0]
    if isinstance(meaning, Steps) and meaning.first.constant == 0 and meaning.step == ONE:
        return flow.space
    return None


RULES: Final[Mapping[str, Rule]] = {"Concat": _concat}
