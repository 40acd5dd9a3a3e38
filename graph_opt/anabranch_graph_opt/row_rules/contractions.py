"""Products of matrices and tensors: rows are safe where they are not summed over nor paired."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch_graph_opt.flow import Axis, Flow, Mixing, State, axis_size, space_of
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_rules.broadcasting import carried_by, meet, same_carrier
from anabranch_graph_opt.row_visit import Rule, Visit

__all__ = ["RULES", "multiplied"]


def multiplied(facts: Facts, left: Flow, right: Flow) -> Flow:
    """Claim on `left @ right`, as NumPy has it.

    Raises:
        Mixing: rows are summed over, or rows meet rows.
    """
    left, right = same_carrier([left, right])
    if not left.rank or not right.rank:
        raise Mixing("multiplies a scalar as a matrix")
    a = left.axes if left.rank > 1 else ((), *left.axes)
    b = right.axes if right.rank > 1 else (*right.axes, ())
    _summed([a[-1], b[-2]])
    stack = meet(facts, [left.with_axes(a[:-2]), right.with_axes(b[:-2])]).axes
    axes = [*stack]
    if left.rank > 1:
        axes.append(a[-2])
    if right.rank > 1:
        axes.append(b[-1])
    return carried_by(axes, [left, right])


def _summed(axes: Sequence[Axis]) -> None:
    if any(space_of(factors) is not None for factors in axes):
        raise Mixing("sums over the rows")


def _matmul(visit: Visit) -> Sequence[State]:
    return [multiplied(visit.facts, visit.data(0), visit.data(1))]


def _matmul_integer(visit: Visit) -> Sequence[State]:
    """Zero points are scalars or one for each row or column of a weight."""
    left = visit.data(0)
    if visit.has(2):
        _scalar_beside_rows(left, visit.fixed(2))
    right = visit.data(1)
    if visit.has(3):
        _scalar_beside_rows(right, visit.fixed(3))
    return [multiplied(visit.facts, left, right)]


def _qlinear_matmul(visit: Visit) -> Sequence[State]:
    left, right = visit.data(0), visit.data(3)
    for i in (1, 2):
        _scalar_beside_rows(left, visit.fixed(i))
    for i in (4, 5):
        _scalar_beside_rows(right, visit.fixed(i))
    product = multiplied(visit.facts, left, right)
    for i in (6, 7):
        _scalar_beside_rows(product, visit.fixed(i))
    return [product]


def _scalar_beside_rows(flow: Flow, parameter: Flow) -> None:
    if flow.space is not None and any(parameter.axes):
        raise Mixing("has one scale or zero point for each row")


def _gemm(visit: Visit) -> Sequence[State]:
    flows = same_carrier([visit.data(i) for i in range(len(visit.states)) if visit.has(i)])
    left, right = flows[0].axes, flows[1].axes
    if len(left) != 2 or len(right) != 2:
        raise Mixing("multiplies tensors that are no matrices")
    if visit.integer("transA", 0):
        left = (left[1], left[0])
    if visit.integer("transB", 0):
        right = (right[1], right[0])
    _summed([left[1], right[0]])
    product = carried_by([left[0], right[1]], flows[:2])
    if len(flows) == 2:
        return [product]
    added = meet(visit.facts, [product, flows[2]])
    if any(axis_size(a) != axis_size(b) for a, b in zip(added.axes, product.axes, strict=True)):
        raise Mixing("adds a term with more rows than its product has")
    return [added]


def _einsum(visit: Visit) -> Sequence[State]:
    flows = same_carrier([visit.data(i) for i in range(len(visit.states))])
    equation = visit.node.attributes.get_string("equation", "") or ""
    terms, result = _terms(equation, [flow.rank for flow in flows])
    held: dict[str, Axis] = {}
    for term, flow in zip(terms, flows, strict=True):
        for label, factors in zip(term, flow.axes, strict=True):
            if space_of(factors) is not None and term.count(label) > 1:
                raise Mixing("takes a diagonal over the rows")
            other = held.setdefault(label, factors)
            rows = {space_of(other), space_of(factors)} != {None}
            if rows and other != factors:
                raise Mixing("pairs an axis of rows with an axis that holds none")
            if axis_size(other).constant == 1 or axis_size(factors).constant is not None:
                held[label] = factors if axis_size(factors).constant != 1 else other
    for label, factors in held.items():
        if space_of(factors) is not None and label not in result:
            raise Mixing("sums over the rows")
    return [carried_by([held.get(label, ()) for label in result], flows)]


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Labels of each operand and of the result; an ellipsis becomes labels 0, 1, ... of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise Mixing("has an equation that does not fit its operands")
    widths = [rank - len(part.replace("...", "")) for part, rank in zip(parts, ranks, strict=True)]
    if any(width < 0 or (width > 0 and "..." not in part)
           for part, width in zip(parts, widths, strict=True)):  # fmt: skip
        raise Mixing("has an equation that does not fit its operands")
    widest = max((w for p, w in zip(parts, widths, strict=True) if "..." in p), default=0)
    if widest > 10:
        raise Mixing("has an ellipsis of more than ten axes")
    digits = "0123456789"[:widest]
    terms = [
        part.replace("...", digits[widest - width :])
        for part, width in zip(parts, widths, strict=True)
    ]
    if arrow:
        return terms, right.replace("...", digits)
    labels = left.replace("...", "").replace(",", "")
    once = sorted(label for label in set(labels) if labels.count(label) == 1)
    return terms, digits + "".join(once)


RULES: Final[Mapping[str, Rule]] = {
    "MatMul": _matmul,
    "MatMulInteger": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
}
