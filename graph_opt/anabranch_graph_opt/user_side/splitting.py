"""Splits a graph into what runs once per user and what runs once per row."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes import common as library

from anabranch_graph_opt.flow import Axis, Factor, Flow, Mixed, State, plain
from anabranch_graph_opt.row_facts import Facts
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_graph_opt.row_walk import RowWalk
from anabranch_graph_opt.sizes import Size
from anabranch_graph_opt.user_side.regions import Boundary, UserRegion, find_user_region
from anabranch_wire.errors import AnabranchError

__all__ = ["USER_INDEX", "UserSplit", "split_users"]

USER_INDEX = "ab_user_index"
"""Input of a dense graph with a user side: int64 [rows], the user of each row."""

_WORTHWHILE = frozenset(
    {
        "Attention", "Conv", "Einsum", "GRU", "Gemm", "LSTM", "LayerNormalization", "Loop",
        "MatMul", "RNN", "Softmax",
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
    walk.run(_claims(dense, shared, facts))
    region = find_user_region(dense, users, walk, facts)
    if not any(node.op_type in _WORTHWHILE for node in region.nodes):
        return "nothing but lookups and small operators depends on user inputs alone"
    if facts.min_rows > 1:
        return "the graph needs two rows at least, and a request may have one user"
    try:
        user = _user_model(dense, region, users, shared)
        proof = prove_rows(user)
    except (AnabranchError, ValueError) as error:
        return f"the user's part cannot be taken out: {error}"
    names = tuple(str(boundary.value.name) for boundary in region.boundaries)
    axes = [boundary.axis for boundary in region.boundaries]
    if not proof.independent or proof.min_rows > 1:
        return f"users are not proven independent of each other: {proof.reason}"
    outputs = [str(value.name) for value in user.graph.outputs]
    if [proof.output_axes[name] for name in outputs] != axes:
        return "users are not along the axis that the whole graph has them on"
    _gather(dense, region.boundaries, outputs)
    library.RemoveUnusedNodesPass()(dense)
    for value in [value for value in dense.graph.inputs if not value.uses()]:
        if not value.is_graph_output():
            dense.graph.inputs.remove(value)
    return UserSplit(user, dense, tuple(outputs) if names else ())


def _claims(model: ir.Model, shared: frozenset[str], facts: Facts) -> dict[str, State]:
    claims: dict[str, State] = {}
    for value in model.graph.inputs:
        name = str(value.name)
        if value.shape is None:
            claims[name] = Mixed(f"input {name!r} has no shape")
            continue
        axes: list[Axis] = []
        for index, size in enumerate(value.shape):
            if index == 0 and name not in shared:
                axes.append((Factor(Size.of(facts.rows.atom), facts.rows),))
            elif isinstance(size, int):
                axes.append(plain(size))
            else:
                axes.append(plain(facts.unknown()))
        claims[name] = Flow(tuple(axes))
    return claims


def _user_model(
    model: ir.Model, region: UserRegion, users: frozenset[str], shared: frozenset[str]
) -> ir.Model:
    inputs = [value for value in model.graph.inputs if value.name in users | shared]
    outputs: list[ir.Value] = [boundary.value for boundary in region.boundaries]
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


def _gather(dense: ir.Model, boundaries: Sequence[Boundary], names: Sequence[str]) -> None:
    """Let the candidates' part take boundary values from outside, by the user of each row."""
    graph = dense.graph
    index = ir.Value(
        name=USER_INDEX, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["batch"])
    )
    first = next(iter(graph), None)
    for boundary, name in zip(boundaries, names, strict=True):
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
        if first is None:
            graph.append(node)
        else:
            graph.insert_before(first, node)
    graph.inputs.append(index)
