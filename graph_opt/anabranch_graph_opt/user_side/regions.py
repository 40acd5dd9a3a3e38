"""Which part of a graph depends on user inputs alone, and where it meets the candidates.

A value is of the user where everything it is made of comes from user inputs, user buffers and
constants. Where such a value is used together with a candidate's, it is a boundary: computed once
per user and gathered by the rows of the batch. That is only the same number where each row of the
value depends on that row of the inputs alone, so a boundary needs a proven row axis (`row_flow`):
shapes that fit are no proof, since positions in the batch have them too. A value that is not proven
moves to the candidates' side, and the boundary moves up to what it is made of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from anabranch_graph_opt.flow import Flow
from anabranch_graph_opt.row_facts import Facts, relabelled
from anabranch_graph_opt.row_walk import RowWalk

__all__ = ["Boundary", "UserRegion", "find_user_region"]


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """A value of the user that candidates use.

    Attributes:
        value: of the graph.
        axis: its row axis.
    """

    value: ir.Value
    axis: int


@dataclass(frozen=True, slots=True, eq=False)
class UserRegion:
    """The user's part of a graph.

    Attributes:
        nodes: that run once per user, in order.
        boundaries: where it meets the rest; none of them where there is nothing to compute.
    """

    nodes: tuple[ir.Node, ...]
    boundaries: tuple[Boundary, ...]


def find_user_region(
    model: ir.Model, users: frozenset[str], walk: RowWalk, facts: Facts
) -> UserRegion:
    """Return the part of a graph that can be computed once per user.

    Args:
        model: whose rows are walked.
        users: names of the inputs and buffers that hold a user.
        walk: claims on all of its values.
        facts: of that walk.
    """
    graph = model.graph
    refused: set[ir.Node] = set()
    while True:
        own, nodes = _own_values(graph, users, refused)
        boundaries: list[Boundary] = []
        moved = False
        for value in own:
            if not _is_used_outside(value, nodes):
                continue
            axis = _row_axis(value, walk, facts)
            if axis is not None and _has_static_row(value, axis):
                boundaries.append(Boundary(value, axis))
                continue
            producer = value.producer()
            if producer is not None:
                refused.add(producer)
                moved = True
            elif not _is_input_gatherable(value):
                return UserRegion((), ())
        if not moved:
            return UserRegion(tuple(nodes), tuple(boundaries))


def _own_values(
    graph: ir.Graph, users: frozenset[str], refused: set[ir.Node]
) -> tuple[list[ir.Value], dict[ir.Node, None]]:
    """Return the values that depend on user inputs alone, and the nodes that compute them."""
    own: dict[ir.Value, None] = {value: None for value in graph.inputs if value.name in users}
    nodes: dict[ir.Node, None] = {}
    for node in graph:
        if node in refused:
            continue
        needed = [value for value in _needs(node, graph) if value.const_value is None]
        if needed and all(value in own for value in needed):
            nodes[node] = None
            own.update(dict.fromkeys(node.outputs))
    return list(own), nodes


def _needs(node: ir.Node, graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield the values of the main graph that a node depends on, those of its bodies included."""
    yield from (value for value in node.inputs if value is not None)
    bodies = [a.as_graph() for a in node.attributes.values() if a.type is ir.AttributeType.GRAPH]
    while bodies:
        body = bodies.pop()
        candidates = [*body.outputs]
        for inner in body:
            candidates += [value for value in inner.inputs if value is not None]
            bodies += [
                a.as_graph() for a in inner.attributes.values() if a.type is ir.AttributeType.GRAPH
            ]
        for value in candidates:
            producer = value.producer()
            if value.graph is graph if producer is None else producer.graph is graph:
                yield value


def _is_used_outside(value: ir.Value, nodes: Mapping[ir.Node, None]) -> bool:
    if value.is_graph_output():
        return True
    return any(_main_node(node, nodes) for node, _ in value.uses())


def _main_node(node: ir.Node, nodes: Mapping[ir.Node, None]) -> bool:
    """Whether a use is by the candidates; what bodies of the user's nodes use is the user's."""
    return node not in nodes and not any(_holds(owner, node) for owner in nodes)


def _holds(owner: ir.Node, node: ir.Node) -> bool:
    """Whether `node` is inside a body of `owner`."""
    bodies = [a.as_graph() for a in owner.attributes.values() if a.type is ir.AttributeType.GRAPH]
    while bodies:
        body = bodies.pop()
        if node.graph is body:
            return True
        for inner in body:
            bodies += [
                a.as_graph() for a in inner.attributes.values() if a.type is ir.AttributeType.GRAPH
            ]
    return False


def _row_axis(value: ir.Value, walk: RowWalk, facts: Facts) -> int | None:
    """Return the axis that holds a row of the batch each, proven; None where nothing is proven."""
    state = walk.state(value)
    if not isinstance(state, Flow) or not state.is_data:
        return None
    axis = state.row_axis
    if axis is None or len(state.axes[axis]) != 1 or relabelled(state, facts.rows) is None:
        return None
    return axis


def _has_static_row(value: ir.Value, axis: int) -> bool:
    """Whether a row of a value has the same size in every batch, as staging needs it."""
    return (
        value.shape is not None
        and value.dtype is not None
        and all(isinstance(size, int) for i, size in enumerate(value.shape) if i != axis)
    )


def _is_input_gatherable(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(size, int) for size in value.shape[1:])
