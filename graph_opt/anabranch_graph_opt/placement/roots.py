"""What the values of a graph are made of, told by one walk forward over all of its nodes.

Each node is looked at once, whatever number of lookups wants to know: a chain that a thousand
lookups share costs as much as one that a single lookup has.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.graph_order import bodies_of
from anabranch_graph_opt.placement.operators import ID_OPERATORS
from anabranch_graph_opt.placement.tables import is_table

__all__ = ["CONSTANT", "Roots", "find_roots"]

_SHAPE_OPERATORS: Final = frozenset({"Shape", "Size"})


@dataclass(frozen=True, slots=True, eq=False)
class Roots:
    """What one value is made of.

    Attributes:
        by_value: whether elements of a graph input reach it by the arithmetic of ids alone.
        by_shape: whether the shape of what an input reaches does.
        is_reached: whether it depends on any input at all, in whatever way.
        foreign: an operator on the way that makes no ids.
        table: a float table that is read on the way.
    """

    by_value: bool = False
    by_shape: bool = False
    is_reached: bool = False
    foreign: ir.Node | None = None
    table: ir.Value | None = None


CONSTANT: Final = Roots()
"""What depends on no input."""
_INPUT: Final = Roots(by_value=True, is_reached=True)


def find_roots(graph: ir.Graph) -> Mapping[ir.Value, Roots]:
    """Return the roots of every value of a graph in order and of its bodies.

    What enters a loop or a branch reaches all inputs of its bodies.
    """
    found: dict[ir.Value, Roots] = dict.fromkeys(graph.inputs, _INPUT)
    pending: list[tuple[Iterator[ir.Node], ir.Node | None]] = [(iter(graph), None)]
    while pending:
        nodes, owner = pending[-1]
        node = next(nodes, None)
        if node is None:
            pending.pop()
            if owner is not None:  # all of its bodies are known now
                _leave(owner, found)
            continue
        bodies = bodies_of(node)
        if not bodies:
            _leave(node, found)
            continue
        entering = _joined(found, node.inputs)
        pending.append((iter(()), node))
        for body in bodies:
            found.update(dict.fromkeys(body.inputs, entering))
            pending.append((iter(body), None))
    return found


def _leave(node: ir.Node, found: dict[ir.Value, Roots]) -> None:
    roots = _after(node, found)
    for value in node.outputs:
        found[value] = roots


def _after(node: ir.Node, found: Mapping[ir.Value, Roots]) -> Roots:
    below = _joined(found, _read_by(node))
    if node.domain not in ("", "ai.onnx") or node.op_type not in ID_OPERATORS:
        return Roots(is_reached=below.is_reached, foreign=node)
    if node.op_type in _SHAPE_OPERATORS:
        return Roots(by_shape=below.is_reached, is_reached=below.is_reached)
    if node.op_type.startswith("Gather") and node.inputs:
        data = node.inputs[0]
        if data is not None and is_table(data) and below.table is None:
            return Roots(below.by_value, below.by_shape, below.is_reached, below.foreign, data)
    return below


def _read_by(node: ir.Node) -> Iterator[ir.Value | None]:
    """Yield what a node depends on: inputs, and what its bodies return."""
    yield from node.inputs
    for body in bodies_of(node):
        yield from body.outputs


def _joined(found: Mapping[ir.Value, Roots], values: Iterable[ir.Value | None]) -> Roots:
    by_value = by_shape = is_reached = False
    foreign: ir.Node | None = None
    table: ir.Value | None = None
    for value in values:
        if value is None or value.const_value is not None:
            continue
        # Nothing is known of a value that comes from nowhere: an input, as far as ids go.
        roots = found.get(value, _INPUT)
        by_value |= roots.by_value
        by_shape |= roots.by_shape
        is_reached |= roots.is_reached
        foreign = foreign or roots.foreign
        table = table or roots.table
    return Roots(by_value, by_shape, is_reached, foreign, table)
