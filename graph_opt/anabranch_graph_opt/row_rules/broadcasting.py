"""Tensors that meet element by element: which axes the result has, and whether rows stay apart."""

from collections.abc import Sequence

from anabranch_graph_opt.flow import Axis, Flow, Mixing, axis_size, plain, space_of
from anabranch_graph_opt.row_facts import Facts, relabelled

__all__ = ["carried_by", "meet", "same_carrier"]


def same_carrier(flows: Sequence[Flow]) -> list[Flow]:
    """Return the flows with all row factors in one space.

    Raises:
        Mixing: they hold rows in different arrangements, or rows beside the row of a loop.
    """
    spaces = [flow.space for flow in flows if flow.space is not None]
    if not spaces:
        return list(flows)
    if any(flow.current for flow in flows):
        raise Mixing("combines the row that a loop is at with all rows")
    leading = next((f.space for f in flows if f.space is not None and not f.same), spaces[0])
    result = []
    for flow in flows:
        moved = flow if flow.space is None else relabelled(flow, leading)
        if moved is None:
            raise Mixing("combines rows with rows in another order or selection")
        result.append(moved)
    return result


def carried_by(axes: Sequence[Axis], flows: Sequence[Flow], number: int | None = None) -> Flow:
    """Claim on content computed element by element, or row by row, from `flows`.

    Args:
        axes: of the result; at most one may hold rows.
        flows: everything the result is computed from, in one space.
        number: of the result, where it is one scalar a row.

    Raises:
        Mixing: two axes hold rows.
    """
    if sum(space_of(factors) is not None for factors in axes) > 1:
        raise Mixing("pairs rows with rows")
    holding = [flow for flow in flows if flow.space is not None]
    return Flow(
        tuple(axes),
        current=any(flow.current for flow in flows),
        same=all(flow.same for flow in holding),
        number=number,
    )


def meet(facts: Facts, flows: Sequence[Flow], number: int | None = None) -> Flow:
    """Claim on an elementwise result under multidirectional broadcasting.

    Args:
        facts: of the analysis.
        flows: the operands.
        number: number of the computation, given to the result where it is one scalar a row.

    Raises:
        Mixing: an axis that holds rows meets one that does not, except where that has size 1.
    """
    flows = same_carrier(flows)
    rank = max((flow.rank for flow in flows), default=0)
    padded = [((),) * (rank - flow.rank) + flow.axes for flow in flows]
    axes = [_meeting([axes[i] for axes in padded], facts) for i in range(rank)]
    scalars = all(
        flow.number is not None if flow.space is not None else not any(flow.axes) for flow in flows
    )
    return carried_by(axes, flows, number if scalars else None)


def _meeting(axes: Sequence[Axis], facts: Facts) -> Axis:
    wide = [factors for factors in axes if factors]
    if not wide:
        return ()
    if all(factors == wide[0] for factors in wide):
        return wide[0]
    if any(space_of(factors) is not None for factors in wide):
        sizes = " and one of ".join(sorted({str(axis_size(factors)) for factors in wide}))
        raise Mixing(f"broadcasts an axis of {sizes} against each other (N is the number of rows)")
    # Different sizes meet only where all but one of them are 1; a constant is never that.
    for factors in wide:
        if axis_size(factors).constant is not None:
            return factors
    return plain(facts.unknown())
