"""Guesses what pooling a chain of values is: which operator reduces, and what factors rows have.

Nothing here is certain: axes, shapes and what broadcasts against what are not looked at. A guess
is right if running the graph gives what it says; see `proofs`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.bags.bodies import read_from
from anabranch_graph_opt.bags.caller_side import CallerSide
from anabranch_graph_opt.bags.factors import Factor, FactorForm
from anabranch_graph_opt.bags.found_bags import Combiner

__all__ = ["Guess", "guesses"]

_LAYOUT: Final = frozenset(
    {"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
_REDUCING: Final[dict[str, Combiner]] = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
}


@dataclass(frozen=True, slots=True)
class Guess:
    """What a value may be.

    Attributes:
        output: the value.
        combiner: how rows become one.
        factors: of rows before, and of their sum after; empty: all are 1.
    """

    output: ir.Value
    combiner: Combiner
    factors: tuple[Factor, ...] = ()


def guesses(
    rows: ir.Value, results: Sequence[ir.Value], graph: ir.Graph, caller: CallerSide
) -> Iterator[Guess]:
    """Yield what results of a region may be, in the order of the graph.

    Args:
        rows: of a lookup.
        results: values that all of them pass through.
        graph: that they are in.
        caller: what is the caller's in it.
    """
    factors: list[Factor] = []
    last = rows
    for at, value in enumerate(results):
        node = value.producer()
        if node is None:
            return
        if node.op_type == "Loop":
            yield from _of_loop(node, results[at:], factors, graph, caller)
            return
        if last not in node.inputs:
            return
        combiner = _REDUCING.get(node.op_type)
        if combiner is None and node.op_type == "MatMul":
            combiner = "sum"
            if node.inputs[1] is not last or node.inputs[0] is None:
                return
            factors.append(Factor("bag", node.inputs[0]))
        if combiner is not None:
            yield from _of_reduction(value, results[at + 1 :], combiner, factors)
            return
        factor = _factor(node, last)
        if factor is not None:
            factors.append(factor)
        elif node.op_type not in _LAYOUT:
            return
        last = value


def _of_reduction(
    value: ir.Value, after: Sequence[ir.Value], combiner: Combiner, factors: Sequence[Factor]
) -> Iterator[Guess]:
    """Yield what a reduced value, and what it is divided by afterwards, may be."""
    if not factors:
        # A divisor alone is cheaper where it is: after the sum, once per bag.
        yield Guess(value, combiner)
        return
    if combiner == "max":
        return
    own = [*factors]
    if combiner == "mean":
        own.append(Factor("length", None, divides=True))
    yield Guess(value, "sum", tuple(own))
    last = value
    for result in after:
        node = result.producer()
        if node is None or last not in node.inputs:
            return
        factor = _factor(node, last, "row")
        if factor is not None:
            own.append(factor)
        elif node.op_type not in _LAYOUT:
            return
        yield Guess(result, "sum", tuple(own))
        last = result


def _of_loop(
    loop: ir.Node,
    results: Sequence[ir.Value],
    factors: Sequence[Factor],
    graph: ir.Graph,
    caller: CallerSide,
) -> Iterator[Guess]:
    """Yield what comes out of a loop over bags, whose body is not looked at.

    What the caller sends must not steer the loop, or a run with other inputs could differ from all
    that are tried: only sizes and constants enter, and at most one tensor of factors.
    """
    varying = {
        value: None
        for value in read_from(loop, graph)
        if caller.has(value) and caller.varies(value)
    }
    own = [*factors]
    if varying:
        value, *others = varying
        if others or own or value.dtype is not ir.DataType.FLOAT:
            return
        own.append(Factor("bag", value))
    for result in results:
        if own:
            yield Guess(result, "sum", tuple(own))
            continue
        for combiner in _REDUCING.values():
            yield Guess(result, combiner)


def _factor(node: ir.Node, rows: ir.Value, form: FactorForm = "rows") -> Factor | None:
    """Return what a node multiplies rows by; None where it does something else."""
    inputs = node.inputs
    if node.op_type == "Mul" and len(inputs) == 2:
        other = inputs[1] if inputs[0] is rows else inputs[0]
        return None if other is None or other is rows else Factor(form, other)
    if node.op_type == "Div" and inputs[0] is rows:
        other = inputs[1]
        return None if other is None or other is rows else Factor(form, other, divides=True)
    if node.op_type == "Where" and inputs[0] is not None:
        condition, kept, left = inputs
        if kept is rows and _is_zero(left):
            return Factor(form, condition)
        if left is rows and _is_zero(kept):
            return Factor(form, condition, negated=True)
    return None


def _is_zero(value: ir.Value | None) -> bool:
    constant = None if value is None else value.const_value
    return constant is not None and constant.size <= 1 and not constant.numpy().any()
