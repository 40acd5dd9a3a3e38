"""Which part of a graph depends on user inputs alone, and where it meets the candidates.

A value is of the user where everything it is made of comes from user inputs, user buffers and
constants. Where such a value is used together with a candidate's, it is a boundary: computed once
per user and gathered by the rows of the batch. That is only the same number where each row of the
value depends on that row of the inputs alone, so a boundary needs a proven row axis (`row_flow`):
shapes that fit are no proof, since positions in the batch have them too. A value that is not proven
moves to the candidates' side, and the boundary moves up to what it is made of.

Sizes are an exception: the number of users is not the number of rows, but what is made of sizes
alone costs nothing, so both sides make it, each out of its own shapes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from anabranch_graph_opt.flow import Flow
from anabranch_graph_opt.row_facts import Facts, relabelled
from anabranch_graph_opt.row_walk import RowWalk
from anabranch_graph_opt.user_side.own_values import find_own_values, is_inside

__all__ = ["Boundary", "UserRegion", "find_user_region"]


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """A value of the user that candidates use.

    Attributes:
        value: of the graph.
        axis: its row axis.
        shapes: nodes of the candidates' side that want to know nothing but its shape.
        is_gathered: whether any others use it.
    """

    value: ir.Value
    axis: int
    shapes: tuple[ir.Node, ...]
    is_gathered: bool


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
    refused: set[ir.Node] = set()
    doubled: set[ir.Node] = set()
    while True:
        own = find_own_values(model.graph, users, refused)
        boundaries: list[Boundary] = []
        moved = False
        for value in own.values:
            producer = value.producer()
            outside = [] if producer in doubled else _uses_outside(value, own.nodes, doubled)
            if not outside and not value.is_graph_output():
                continue
            if producer is not None and value in own.sizes and not value.is_graph_output():
                doubled.add(producer)
                moved = True
                continue
            axis = _row_axis(value, walk, facts)
            if axis is not None and _has_static_row(value, axis):
                boundaries.append(_boundary(value, axis, outside))
            elif producer is None:
                return UserRegion((), ())
            else:
                refused.add(producer)
                moved = True
        if not moved:
            return UserRegion(tuple(own.nodes), tuple(boundaries))


def _uses_outside(
    value: ir.Value, nodes: Mapping[ir.Node, None], doubled: set[ir.Node]
) -> list[ir.Node]:
    """Return the nodes of the candidates that use a value.

    What bodies of the user's nodes use is the user's; what both sides make is of both.
    """
    producer = value.producer()
    graph = value.graph if producer is None else producer.graph
    outside = []
    for node, _ in value.uses():
        is_own = node in nodes
        if node.graph is not graph:
            is_own = any(is_inside(node, owner) for owner in nodes)
        if node in doubled or not is_own:
            outside.append(node)
    return outside


def _boundary(value: ir.Value, axis: int, outside: list[ir.Node]) -> Boundary:
    shapes = tuple(dict.fromkeys(node for node in outside if _is_shape_of(node, value)))
    is_gathered = value.is_graph_output() or any(node not in shapes for node in outside)
    return Boundary(value, axis, shapes, is_gathered)


def _is_shape_of(node: ir.Node, value: ir.Value) -> bool:
    producer = value.producer()
    graph = value.graph if producer is None else producer.graph
    return node.op_type == "Shape" and node.domain in ("", "ai.onnx") and node.graph is graph


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
