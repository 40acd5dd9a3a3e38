"""Whether the nodes of a graph stand in an order in which they can run, as ONNX wants it."""

from collections.abc import Iterator

import onnx_ir as ir

from anabranch_wire.errors import InvalidInput

__all__ = ["bodies_of", "check_order"]


def check_order(graph: ir.Graph) -> None:
    """Check that every node follows what it uses; bodies of loops and branches are looked into.

    Raises:
        InvalidInput: nodes go round in a circle, or stand in another order.
    """
    done: set[ir.Node] = set()
    pending: list[tuple[Iterator[ir.Node], ir.Node | None]] = [(iter(graph), None)]
    while pending:
        nodes, owner = pending[-1]
        node = next(nodes, None)
        if node is None:
            pending.pop()
            if owner is not None:
                done.add(owner)
            continue
        for value in node.inputs:
            producer = None if value is None else value.producer()
            if producer is not None and producer not in done:
                assert value is not None
                raise InvalidInput(
                    f"a node {node.op_type} uses {value.name!r} before it is computed: the graph "
                    "has a cycle, or its nodes are not in order"
                )
        pending.append((iter(()), node))
        pending += [(iter(body), None) for body in bodies_of(node)]


def bodies_of(node: ir.Node) -> list[ir.Graph]:
    """Return the bodies of a loop or a branch."""
    bodies: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            bodies.append(attribute.as_graph())
        elif attribute.type is ir.AttributeType.GRAPHS:
            bodies += attribute.as_graphs()
    return bodies
