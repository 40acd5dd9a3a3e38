"""`If`: the branch that is taken, or what holds in both."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch_graph_opt.flow import Flow, Mixed, Mixing, State, plain, space_of
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_visit import Rule, Visit

__all__ = ["RULES"]


def _if(visit: Visit) -> Sequence[State]:
    condition = visit.flow(0)
    numbers = condition.numbers
    branches = [visit.node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    if numbers is not None and len(numbers) == 1:
        zero = visit.facts.zero(numbers[0])
        if zero is not None:
            return visit.walk(branches[1 if zero else 0], ())
    if visit.data(0).space is not None:
        raise Mixing("chooses a branch by the data of rows")
    yes, no = (visit.walk(branch, ()) for branch in branches)
    return [_either(visit.facts, a, b, condition.current) for a, b in zip(yes, no, strict=True)]


def _either(facts: Facts, yes: State, no: State, current: bool) -> State:
    """What holds whichever branch is taken."""
    for state in (yes, no):
        if isinstance(state, Mixed):
            return state
    if not isinstance(yes, Flow) or not isinstance(no, Flow):
        return Mixed("an If gives a sequence in a branch that cannot be told")
    if not yes.is_data or not no.is_data:
        if yes == no and not current:
            return yes
        return Mixed("an If gives positions or the number of rows in a branch that cannot be told")
    if current and yes.axes != no.axes:
        return Mixed("an If gives tensors of a size that depends on the row")
    if yes.rank != no.rank:
        return Mixed("an If gives tensors of different rank in its branches")
    if yes.space is None and no.space is None:
        axes = tuple(
            a if a == b else plain(facts.unknown()) for a, b in zip(yes.axes, no.axes, strict=True)
        )
        return Flow(axes, current=current or yes.current or no.current)
    if current or any(
        a != b and (space_of(a) is not None or space_of(b) is not None)
        for a, b in zip(yes.axes, no.axes, strict=True)
    ):
        return Mixed("an If arranges rows differently in its branches")
    axes = tuple(
        a if a == b else plain(facts.unknown()) for a, b in zip(yes.axes, no.axes, strict=True)
    )
    return Flow(axes, same=yes.same and no.same)


RULES: Final[Mapping[str, Rule]] = {"If": _if}
