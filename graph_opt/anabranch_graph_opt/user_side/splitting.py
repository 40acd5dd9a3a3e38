"""Splits a graph into what runs once per user and what runs once per row."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes import common as library

from anabranch_graph_opt.graph_constants import integers
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_graph_opt.row_walk import RowWalk
from anabranch_graph_opt.user_side.known_sizes import input_claims
from anabranch_graph_opt.user_side.regions import Boundary, UserRegion, find_user_region
from anabranch_wire.errors import AnabranchError

__all__ = ["USER_INDEX", "UserSplit", "split_users"]

USER_INDEX = "ab_user_index"
"""Input of a dense graph with a user side: int64 [rows], the user of each row."""

_WORTHWHILE = frozenset(
    {
        "Attention", "Conv", "Einsum", "GRU", "Gemm", "LSTM", "LayerNormalization", "Loop",
        "MatMul", "MatMulInteger", "RNN", "Softmax",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class UserSplit:
    """A graph in two parts.

    Attributes:
        user: takes user inputs and user buffers, gives the boundary values, a row per user.
        dense: takes those in place of what it computed from user inputs, and `USER_INDEX`.
        boundaries: names of the outputs of `user`, which are inputs of `dense`.
    """

    user: ir.Model
    dense: ir.Model
    boundaries: tuple[str, ...]


def split_users(model: ir.Model, users: frozenset[str], shared: frozenset[str]) -> UserSplit | str:
    """Split a graph whose lookups are cut; return why not where nothing is to be gained.

    The given model is not changed.

    Args:
        model: in normal form, all of its inputs with rows on axis 0 but `shared`.
        users: inputs and buffers that hold a user.
        shared: inputs and buffers that all rows of a request share.
    """
    dense = model.clone()
    facts = Facts()
    walk = RowWalk(dense, facts)
    walk.run(input_claims(dense, shared, facts))
    region = find_user_region(dense, users, walk, facts)
    if not any(node.op_type in _WORTHWHILE for node in region.nodes):
        return "nothing but lookups and small operators depends on user inputs alone"
    try:
        user = _user_model(dense, region, users, shared)
        proof = prove_rows(user)
    except (AnabranchError, ValueError) as error:
        return f"the user's part cannot be taken out: {error}"
    gathered = [boundary for boundary in region.boundaries if boundary.is_gathered]
    axes = [boundary.axis for boundary in gathered]
    if not proof.independent:
        return f"users are not proven independent of each other: {proof.reason}"
    if proof.min_rows > 1:
        return "the user's part needs two rows at least, and a batch may have one user"
    outputs = [str(value.name) for value in user.graph.outputs]
    if [proof.output_axes[name] for name in outputs] != axes:
        return "users are not along the axis that the whole graph has them on"
    _meet(dense, region.boundaries, outputs)
    library.RemoveUnusedNodesPass()(dense)
    for value in [value for value in dense.graph.inputs if not value.uses()]:
        if not value.is_graph_output():
            dense.graph.inputs.remove(value)
    return UserSplit(user, dense, tuple(outputs))


def _user_model(
    model: ir.Model, region: UserRegion, users: frozenset[str], shared: frozenset[str]
) -> ir.Model:
    inputs = [value for value in model.graph.inputs if value.name in users | shared]
    outputs = [boundary.value for boundary in region.boundaries if boundary.is_gathered]
    graph = ir.convenience.extract(model.graph, inputs, outputs)
    for index, value in enumerate(list(graph.outputs)):
        name = f"ab_once_{index}"
        if value in graph.inputs:
            copy = ir.node("Identity", [value])
            copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
            graph.append(copy)
            graph.outputs[index] = copy.outputs[0]
            copy.outputs[0].name = name
        else:
            value.name = name
    for value in [value for value in graph.inputs if not value.uses()]:
        graph.inputs.remove(value)
    graph.name = "user"
    graph.opset_imports.update(model.opset_imports)
    return ir.Model(graph, ir_version=model.ir_version)


def _meet(dense: ir.Model, boundaries: Sequence[Boundary], names: Sequence[str]) -> None:
    """Let the candidates' part take boundary values from outside, by the user of each row."""
    graph = dense.graph
    index = ir.Value(
        name=USER_INDEX, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["batch"])
    )
    places = iter(names)
    new: list[ir.Node] = []
    for boundary in boundaries:
        for node in boundary.shapes:
            new += _shape_by_rows(graph, boundary, node, index)
        if boundary.is_gathered:
            new.append(_gathered(graph, boundary, next(places), index))
    if (first := next(iter(graph), None)) is None:
        graph.extend(new)
    else:
        graph.insert_before(first, new)
    graph.inputs.append(index)


def _gathered(graph: ir.Graph, boundary: Boundary, name: str, index: ir.Value) -> ir.Node:
    """Replace a boundary value by its entries for each row; return the node that picks them."""
    old = boundary.value
    assert old.shape is not None
    shape = [size if isinstance(size, int) else None for size in old.shape]
    shape[boundary.axis] = None
    source = ir.Value(name=name, type=old.type, shape=ir.Shape(shape))
    graph.inputs.append(source)
    node = ir.node("Gather", [source, index], {"axis": boundary.axis})
    gathered = node.outputs[0]
    gathered.type, gathered.shape = old.type, old.shape
    is_output = old.is_graph_output()
    ir.convenience.replace_all_uses_with(old, gathered, replace_graph_outputs=True)
    if is_output:
        gathered.name, old.name = old.name, f"{old.name}_once"
    else:
        gathered.name = f"{name}_rows"
    return node


def _shape_by_rows(
    graph: ir.Graph, boundary: Boundary, node: ir.Node, index: ir.Value
) -> list[ir.Node]:
    """Replace the shape of a boundary value by that of what is gathered of it, without a gather."""
    sizes = boundary.value.shape
    assert sizes is not None
    begin, end, _ = slice(
        node.attributes.get_int("start", 0), node.attributes.get_int("end", None)
    ).indices(len(sizes))
    rows = ir.node("Shape", [index])
    rows.outputs[0].name = f"{node.outputs[0].name}_index"
    parts = [
        rows.outputs[0] if axis == boundary.axis else integers(graph, [int(str(sizes[axis]))])
        for axis in range(begin, end)
    ]
    if not parts:
        return []
    joined = ir.node("Concat", parts, {"axis": 0})
    old, new = node.outputs[0], joined.outputs[0]
    new.name, new.type, new.shape = f"{old.name}_rows", old.type, old.shape
    ir.convenience.replace_all_uses_with(old, new)
    return [rows, joined]
