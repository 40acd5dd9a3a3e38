"""Operators that compute each element from the elements at the same place.

Rows stay apart as long as their axes meet. On known integers (sizes) the exact result is kept,
so that shapes computed in the graph can be followed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.flow import Comparison, Flow, Mixing, NumberKind, Numbers, State
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_rules.broadcasting import meet
from anabranch_graph_opt.row_visit import Rule, Visit
from anabranch_graph_opt.sizes import ONE, ZERO, Size

__all__ = ["RULES", "elementwise"]

Arithmetic = Callable[[Facts, tuple[Size, ...]], Size | None]
"""(facts, one element of each operand) -> the element, or None where no polynomial is it."""


def elementwise(visit: Visit) -> Sequence[State]:
    """Rule of any elementwise operator on data."""
    flows = [visit.data(i) for i, state in enumerate(visit.states) if state is not None]
    return [meet(visit.facts, flows, visit.number)]


def _on_numbers(arithmetic: Arithmetic, kind: NumberKind | None = None) -> Rule:
    """Rule of an operator that is followed exactly where all operands are known integers.

    Args:
        arithmetic: computes one element.
        kind: of the result; that of the last operand when left out.
    """

    def rule(visit: Visit) -> Sequence[State]:
        flows = [visit.flow(i) for i in range(len(visit.states)) if visit.has(i)]
        lists = [flow.numbers for flow in flows]
        known = [numbers for numbers in lists if numbers is not None]
        if len(known) < len(lists) or any(flow.rank > 1 for flow in flows):
            return elementwise(visit)
        length = max(len(numbers) for numbers in known)
        if any(len(numbers) not in (1, length) for numbers in known):
            raise Mixing("meets vectors of different lengths")
        own = kind or flows[-1].kind or "int"
        elements: list[Size] = []
        for i in range(length):
            operands = tuple(numbers[i if len(numbers) > 1 else 0] for numbers in known)
            element = arithmetic(visit.facts, operands)
            if element is None and "float" in (own, flows[-1].kind):
                return elementwise(visit)
            elements.append(_new(visit.facts, operands) if element is None else element)
        shape = meet(visit.facts, [Flow(flow.axes) for flow in flows])
        return [replace(shape, meaning=Numbers(tuple(elements), own))]

    return rule


def _new(facts: Facts, operands: tuple[Size, ...]) -> Size:
    """An integer of which nothing is known but whether rows have a say in it."""
    counts_rows = any(size.counts_rows for size in operands)
    return Size.of(facts.atom("a number", counts_rows, least=None))


def _quotient(facts: Facts, operands: tuple[Size, ...]) -> Size | None:
    dividend, divisor = operands
    exact = dividend.over(divisor)
    if exact is not None:
        return exact
    a, b = dividend.constant, divisor.constant
    if a is None or b is None or b == 0:
        return None
    return Size.of(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


def _divide(visit: Visit) -> Sequence[State]:
    return (_EXACT_DIVISION if visit.flow(0).kind == "float" else _WHOLE_DIVISION)(visit)


def _remainder(facts: Facts, operands: tuple[Size, ...]) -> Size | None:
    dividend, divisor = operands
    a, b = dividend.constant, divisor.constant
    if a is not None and b is not None and a >= 0 and b > 0:
        return Size.of(a % b)
    return ZERO if dividend.over(divisor) is not None else None


def _extreme(largest: bool) -> Arithmetic:
    def extreme(facts: Facts, operands: tuple[Size, ...]) -> Size | None:
        best = operands[0]
        for other in operands[1:]:
            above = facts.positive(other - best)
            if above is None:
                return None
            if above == largest:
                best = other
        return best

    return extreme


def _truth(decided: bool | None) -> Size | None:
    return None if decided is None else (ONE if decided else ZERO)


def _nonzero(facts: Facts, size: Size) -> bool | None:
    zero = facts.zero(size)
    return None if zero is None else not zero


def _less(visit: Visit) -> Sequence[State]:
    """`Less` and its kin; a comparison of single numbers is kept for the conditions of loops."""
    (result,) = _on_numbers(_COMPARED[visit.op], "bool")(visit)
    operands = [visit.flow(i).numbers for i in (0, 1)]
    if visit.op not in ("Less", "Greater") or not isinstance(result, Flow):
        return [result]
    left, right = operands if visit.op == "Less" else reversed(operands)
    if left is None or right is None or len(left) != 1 or len(right) != 1:
        return [result]
    return [replace(result, comparison=Comparison(left[0], right[0]))]


_COMPARED: Final[Mapping[str, Arithmetic]] = {
    "Equal": lambda facts, o: _truth(facts.zero(o[0] - o[1])),
    "Less": lambda facts, o: _truth(facts.positive(o[1] - o[0])),
    "Greater": lambda facts, o: _truth(facts.positive(o[0] - o[1])),
    "LessOrEqual": lambda facts, o: _truth(facts.positive(o[1] - o[0] + ONE)),
    "GreaterOrEqual": lambda facts, o: _truth(facts.positive(o[0] - o[1] + ONE)),
}


def _logic(combine: Callable[[bool, bool], bool]) -> Arithmetic:
    def logic(facts: Facts, operands: tuple[Size, ...]) -> Size | None:
        left, right = (_nonzero(facts, size) for size in operands)
        return None if left is None or right is None else _truth(combine(left, right))

    return logic


def _choose(facts: Facts, operands: tuple[Size, ...]) -> Size | None:
    condition = _nonzero(facts, operands[0])
    return None if condition is None else operands[1 if condition else 2]


def _keep(visit: Visit) -> Sequence[State]:
    """Everything that is known about the input holds for the output."""
    return [visit.state(0)]


def _cast(visit: Visit) -> Sequence[State]:
    flow = visit.flow(0)
    target = ir.DataType(visit.integer("to", 0))
    kind = _WIDE_ENOUGH.get(target)
    if isinstance(flow.meaning, Numbers):
        if target is ir.DataType.BOOL:
            return _AS_TRUTH(visit)
        if kind is not None:
            return [replace(flow, meaning=Numbers(flow.meaning.values, kind))]
    elif flow.meaning is not None and kind == "int":
        return [flow]
    return elementwise(visit)


def _cast_like(visit: Visit) -> Sequence[State]:
    """As a cast to a type that is known only where the second input is followed."""
    flow = visit.flow(0)
    if visit.flow(1).kind == "int" and flow.kind != "float":
        return [flow]
    return [visit.data(0)]


_WIDE_ENOUGH: Final[Mapping[ir.DataType, NumberKind]] = {
    ir.DataType.INT64: "int",
    ir.DataType.INT32: "int",
    ir.DataType.DOUBLE: "float",
    ir.DataType.FLOAT: "float",
}
"""Types in which sizes stay what they are; others wrap around or round."""
_WHOLE_DIVISION: Final = _on_numbers(_quotient)
_EXACT_DIVISION: Final = _on_numbers(lambda facts, o: o[0].over(o[1]))
_AS_TRUTH: Final = _on_numbers(lambda facts, o: _truth(_nonzero(facts, o[0])), "bool")

_DATA_ONLY: Final = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd",
    "BitwiseNot", "BitwiseOr", "BitwiseXor", "Celu", "Clip", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu",
    "Log", "Mean", "Mish", "PRelu", "Pow", "Reciprocal", "Relu", "Selu", "Shrink",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "StringConcat",
    "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip

RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_DATA_ONLY, elementwise),
    **dict.fromkeys(_COMPARED, _less),
    "Identity": _keep,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Add": _on_numbers(lambda facts, o: o[0] + o[1]),
    "Sub": _on_numbers(lambda facts, o: o[0] - o[1]),
    "Mul": _on_numbers(lambda facts, o: o[0] * o[1]),
    "Neg": _on_numbers(lambda facts, o: -o[0]),
    "Div": _divide,
    "Mod": _on_numbers(_remainder),
    "Max": _on_numbers(_extreme(largest=True)),
    "Min": _on_numbers(_extreme(largest=False)),
    "Abs": _on_numbers(lambda facts, o: o[0] if facts.positive(o[0] + ONE) else None),
    "Not": _on_numbers(lambda facts, o: _truth(facts.zero(o[0])), "bool"),
    "And": _on_numbers(_logic(lambda a, b: a and b), "bool"),
    "Or": _on_numbers(_logic(lambda a, b: a or b), "bool"),
    "Xor": _on_numbers(_logic(lambda a, b: a != b), "bool"),
    "Where": _on_numbers(_choose),
    **dict.fromkeys(("Floor", "Ceil", "Round"), _on_numbers(lambda facts, o: o[0])),
}
