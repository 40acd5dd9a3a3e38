"""Makes one tensor of weights of the factors that rows of a bag are multiplied by.

Factors are written for rows: [N, L, 1], or repeated for each of the numbers of a row. A weight of a
bag is one number, so that the last axis is dropped; where a factor was repeated by moving elements
alone, it is taken from before that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.graph_constants import integers

__all__ = ["Factor", "FactorForm", "WeightMaker"]

FactorForm = Literal["rows", "bag", "row", "length"]
"""What a factor is laid out for: the rows of a table, one number for each row of a bag, one for
each row of the batch, or the length of a bag."""

_REPEATING: Final = frozenset(
    {"Expand", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)


@dataclass(frozen=True, slots=True)
class Factor:
    """What rows of a bag, or their sum, are multiplied by.

    Attributes:
        form: what it is laid out for.
        value: of the graph; None for the length.
        divides: whether it is divided by.
        negated: whether it is a condition under which rows do not count.
    """

    form: FactorForm
    value: ir.Value | None
    divides: bool = False
    negated: bool = False


class WeightMaker:
    """Adds weights to one graph; equal ones are made once. Nothing reads them there.

    Args:
        graph: the main graph.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[object, ...], ir.Value] = {}

    def variants(
        self, factors: Sequence[Factor], length: int, before: ir.Node
    ) -> Iterator[ir.Value]:
        """Yield float32 [rows, length] values that the weights may be, the cheapest first.

        Args:
            factors: one or more.
            length: of bags.
            before: node of the graph before which they are made.
        """
        cheap = [_unrepeated(factor, length) for factor in factors]
        if cheap != list(factors):
            yield self._weights(cheap, length, before)
        yield self._weights(factors, length, before)

    def _weights(self, factors: Sequence[Factor], length: int, before: ir.Node) -> ir.Value:
        key = (*factors, length)
        if (known := self._made.get(key)) is not None:
            return known
        new = _NewNodes(self._graph, f"ab_bag_{len(self._made)}")
        total: ir.Value | None = None
        for factor in factors:
            value = self._laid_out(factor, length, new)
            if total is None and factor.divides:
                total = _number(self._graph, 1.0)
            if total is None:
                total = value
            else:
                total = new.add("Div" if factor.divides else "Mul", [total, value])
        assert total is not None
        total = new.add("Expand", [total, integers(self._graph, [1, length])])
        total.type = ir.TensorType(ir.DataType.FLOAT)
        total.shape = ir.Shape([None, length])
        self._graph.insert_before(before, new.nodes)
        self._made[key] = total
        return total

    def _laid_out(self, factor: Factor, length: int, new: "_NewNodes") -> ir.Value:
        """Return a factor as float32 [rows or 1, length or 1]."""
        value = factor.value
        if value is None:
            return _number(self._graph, float(length))
        if factor.negated:
            value = new.add("Not", [value])
        if value.dtype is not ir.DataType.FLOAT or factor.negated:
            value = new.add("Cast", [value], to=ir.DataType.FLOAT)
        shape = factor.value.shape if factor.value is not None else None
        columns = 1 if factor.form == "row" else length
        if factor.form != "bag" and (shape is None or len(shape) > 0):
            value = new.add("Gather", [value, _zero(self._graph)], axis=-1)
            if shape is not None and (len(shape) == 1 or shape[-2] == 1):
                columns = 1
        elif factor.form != "bag":
            columns = 1
        return new.add("Reshape", [value, integers(self._graph, [-1, columns])])


class _NewNodes:
    """Nodes that are about to be added to a graph."""

    def __init__(self, graph: ir.Graph, name: str) -> None:
        self._graph = graph
        self._name = name
        self.nodes: list[ir.Node] = []

    def add(self, operator: str, inputs: Sequence[ir.Value], **attributes: object) -> ir.Value:
        # onnx-ir takes any value that an attribute can have, and declares fewer.
        node = ir.node(operator, list(inputs), attributes)  # type: ignore[arg-type]
        node.outputs[0].name = f"{self._name}_{len(self.nodes)}"
        self.nodes.append(node)
        return node.outputs[0]


def _unrepeated(factor: Factor, length: int) -> Factor:
    """Return the factor from where it has one number for each row of a bag, if that is seen."""
    if factor.form != "rows" or factor.value is None:
        return factor
    best: ir.Value | None = None
    value: ir.Value | None = factor.value
    while value is not None:
        if _is_bag(value, length):
            best = value
        node = value.producer()
        if node is None or not _repeats(node):
            break
        value = node.inputs[0]
    if best is None:
        return factor
    return Factor("bag", best, factor.divides, factor.negated)


def _repeats(node: ir.Node) -> bool:
    """Whether a node moves and repeats elements, or makes floats of what are none."""
    if node.op_type != "Cast":
        return node.op_type in _REPEATING
    source = None if node.inputs[0] is None else node.inputs[0].dtype
    target = ir.DataType(node.attributes.get_int("to", 0))
    if source is None or source.is_floating_point():
        return False
    return source is ir.DataType.BOOL or target.is_floating_point()


def _is_bag(value: ir.Value, length: int) -> bool:
    """Whether a value may hold `length` numbers for each entry of axis 0."""
    if value.shape is None or len(value.shape) < 2 or value.const_value is not None:
        return False
    known = [axis for axis in value.shape[1:] if isinstance(axis, int)]
    missing = len(value.shape) - 1 - len(known)
    return prod(known) == (length if missing == 0 else 1) and missing <= 1


def _number(graph: ir.Graph, number: float) -> ir.Value:
    return _constant(graph, f"ab_float_{number}", np.array([[number]], np.float32))


def _zero(graph: ir.Graph) -> ir.Value:
    return _constant(graph, "ab_int_0", np.array(0, np.int64))


def _constant(graph: ir.Graph, name: str, array: NDArray[np.generic]) -> ir.Value:
    if (known := graph.initializers.get(name)) is not None:
        return known
    tensor = ir.tensor(array, name=name)
    value = ir.Value(
        name=name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(tensor.dtype),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value
