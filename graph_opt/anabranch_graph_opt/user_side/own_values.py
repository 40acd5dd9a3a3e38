"""Which values of a graph depend on user inputs alone, and which on nothing but sizes."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["OwnValues", "find_own_values", "is_inside"]


@dataclass(frozen=True, slots=True, eq=False)
class OwnValues:
    """What data flow says about the values of a graph.

    Attributes:
        values: made of user inputs and constants alone, in order.
        nodes: that make them, in order.
        fixed: made of constants alone, weights excepted.
        sizes: made of constants and of shapes of other values, not of what those hold.
    """

    values: dict[ir.Value, None]
    nodes: dict[ir.Node, None]
    fixed: frozenset[ir.Value]
    sizes: frozenset[ir.Value]

    def is_constant(self, value: ir.Value) -> bool:
        """Whether a value is a weight, or made of weights."""
        return value.const_value is not None or value in self.fixed


def find_own_values(
    graph: ir.Graph, users: frozenset[str], refused: Collection[ir.Node] = ()
) -> OwnValues:
    """Follow user inputs through a graph.

    Args:
        graph: in order.
        users: names of the inputs and buffers that hold a user.
        refused: nodes that are not the user's, whatever they are made of.
    """
    own: dict[ir.Value, None] = {value: None for value in graph.inputs if value.name in users}
    nodes: dict[ir.Node, None] = {}
    fixed: set[ir.Value] = set()
    sizes: set[ir.Value] = set()
    for node in graph:
        needed = [
            value
            for value in _needs(node, graph)
            if value.const_value is None and value not in fixed
        ]
        if not needed:
            fixed.update(node.outputs)
            continue
        if node.op_type in ("Shape", "Size") or all(value in sizes for value in needed):
            sizes.update(node.outputs)
        if node not in refused and all(value in own for value in needed):
            nodes[node] = None
            own.update(dict.fromkeys(node.outputs))
    return OwnValues(own, nodes, frozenset(fixed), frozenset(sizes))


def is_inside(node: ir.Node, owner: ir.Node) -> bool:
    """Whether a node is inside a body of another one."""
    return any(inner is node for inner in _inner_nodes(owner))


def _needs(node: ir.Node, graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the values of the main graph that a node depends on, those of its bodies included."""
    yield from (value for value in node.inputs if value is not None)
    used = [value for body in _bodies(node) for value in body.outputs]
    for inner in _inner_nodes(node):
        used += [value for value in inner.inputs if value is not None]
        used += [value for body in _bodies(inner) for value in body.outputs]
    for value in used:
        producer = value.producer()
        if value.graph is graph if producer is None else producer.graph is graph:
            yield value


def _inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    bodies = _bodies(node)
    while bodies:
        for inner in bodies.pop():
            yield inner
            bodies += _bodies(inner)


def _bodies(node: ir.Node) -> list[ir.Graph]:
    graphs = (a for a in node.attributes.values() if a.type is ir.AttributeType.GRAPH)
    return [attribute.as_graph() for attribute in graphs]
