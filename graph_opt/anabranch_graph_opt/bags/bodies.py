"""What nodes with bodies (loops, branches) read from outside, and whom nodes inside belong to."""

from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

__all__ = ["Owners", "body_owners", "outermost", "read_from", "remove_unused"]

Owners = Mapping[Any, ir.Node]
"""Body of control flow -> the node that it belongs to."""


def body_owners(graph: ir.Graph) -> Owners:
    """Return the owner of every body below a graph."""
    return {
        attribute.as_graph(): node
        for node in ir.traversal.RecursiveGraphIterator(graph)
        for attribute in node.attributes.values()
        if attribute.type is ir.AttributeType.GRAPH
    }


def outermost(node: ir.Node, owners: Owners) -> ir.Node:
    """Return the node of the main graph that a node is, or that it is inside of."""
    while (owner := owners.get(node.graph)) is not None:
        node = owner
    return node


def read_from(node: ir.Node, graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield values of `graph` that a node of it takes, or that its bodies capture."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if attribute.type is not ir.AttributeType.GRAPH:
            continue
        for inner in ir.traversal.RecursiveGraphIterator(attribute.as_graph()):
            for value in inner.inputs:
                if value is not None and _belongs_to(value, graph):
                    yield value


def remove_unused(graph: ir.Graph) -> None:
    """Remove nodes of the main graph that nothing reads, and what their bodies read.

    The library's pass leaves the uses of removed bodies behind, so that inputs seem to be needed.
    """
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            _release(node)
            graph.remove(node, safe=True)


def _release(node: ir.Node) -> None:
    for attribute in node.attributes.values():
        if attribute.type is not ir.AttributeType.GRAPH:
            continue
        for inner in ir.traversal.RecursiveGraphIterator(attribute.as_graph()):
            for index in range(len(inner.inputs)):
                inner.replace_input_with(index, None)


def _belongs_to(value: ir.Value, graph: ir.Graph) -> bool:
    producer = value.producer()
    return (value.graph if producer is None else producer.graph) is graph
