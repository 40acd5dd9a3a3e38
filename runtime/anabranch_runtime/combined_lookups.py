"""Lookups whose rows are joined in the same columns: one value with rows in several tables.

A store writes each lookup to columns of its own. So the first one of such columns goes into the
graph's input, the others beside it into scratch, and once a batch one is joined with the others.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_wire.lookups import Lookup, Output
from anabranch_wire.plan import Buffer, Plan

__all__ = ["Joint", "SeparatePlan", "join", "separated"]

_UFUNCS: Final = {"sum": np.add, "multiply": np.multiply}


@dataclass(frozen=True, slots=True)
class Joint:
    """Columns of a scratch buffer that belong into columns of another one.

    Attributes:
        how: they are joined with what is there.
        into: index of the buffer.
        at: first column of that.
        scratch: index of the scratch buffer, among all buffers.
        begin: first column of that.
        columns: how many.
        is_user: whether they have a row for each user.
    """

    how: Literal["sum", "multiply"]
    into: int
    at: int
    scratch: int
    begin: int
    columns: int
    is_user: bool


@dataclass(frozen=True, slots=True, eq=False)
class SeparatePlan:
    """A plan whose lookups all write to columns of their own.

    Attributes:
        plan: buffers of the graph as they were, and behind them scratch.
        scratch: those that are no inputs of the graph; many plans have none.
        joints: what to do once rows were looked up, in the order of the lookups.
    """

    plan: Plan
    scratch: tuple[Buffer, ...]
    joints: tuple[Joint, ...]


def separated(plan: Plan) -> SeparatePlan:
    """Return `plan` with every lookup that joins another one moved into scratch."""
    columns: dict[int, int] = defaultdict(int)
    numbers: dict[int, int] = {}
    lookups: list[Lookup] = []
    joints: list[Joint] = []
    for lookup in plan.lookups:
        if lookup.combine is None:
            lookups.append(lookup)
            continue
        into, at = lookup.output.buffer, lookup.output.column
        scratch = numbers.setdefault(into, len(plan.buffers) + len(numbers))
        begin, count = columns[into], lookup.columns(plan.tables[lookup.table].dim)
        columns[into] += count
        is_user = lookup.side == "user"
        joints.append(Joint(lookup.combine, into, at, scratch, begin, count, is_user))
        moved = Output(buffer=scratch, column=begin)
        lookups.append(msgspec.structs.replace(lookup, combine=None, output=moved))
    if not joints:
        return SeparatePlan(plan, (), ())
    taken = {*(buffer.name for buffer in plan.buffers), *plan.pass_through}
    scratch_buffers = tuple(
        msgspec.structs.replace(
            plan.buffers[into], name=_free_name(plan.buffers[into].name, taken), columns=count
        )
        for into, count in columns.items()
    )
    separate = msgspec.structs.replace(
        plan, buffers=(*plan.buffers, *scratch_buffers), lookups=tuple(lookups)
    )
    return SeparatePlan(separate, scratch_buffers, tuple(joints))


def join(joints: Sequence[Joint], buffers: Sequence[NDArray[Any]], rows: int, users: int) -> None:
    """Join what was looked up, in place.

    Args:
        joints: what belongs where.
        buffers: all of the plan, scratch among them: (at least rows or users, columns).
        rows: that were looked up.
        users: the same of buffers that have a row for each user.
    """
    with np.errstate(all="ignore"):  # rows of a table may hold any numbers
        for joint in joints:
            count = users if joint.is_user else rows
            target = buffers[joint.into][:count, joint.at : joint.at + joint.columns]
            other = buffers[joint.scratch][:count, joint.begin : joint.begin + joint.columns]
            _UFUNCS[joint.how](target, other, out=target)


def _free_name(name: str, taken: set[str]) -> str:
    """Return a name for the scratch beside a buffer, and take it."""
    scratch = f"ab_joined_{name}"
    while scratch in taken:
        scratch += "_"
    taken.add(scratch)
    return scratch
