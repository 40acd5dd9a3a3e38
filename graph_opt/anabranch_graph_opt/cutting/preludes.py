"""The part of a graph that makes ids and weights which the plan cannot say.

It runs before the lookups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.graph_constants import integers
from anabranch_graph_opt.placement.id_grids import IdGrid, IdRun
from anabranch_graph_opt.row_axes import InputAxis
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_wire.errors import AnabranchError

__all__ = ["Prelude", "extract_prelude"]

_IDS: Final = "ab_ids_"
_WEIGHTS: Final = "ab_weights_"


@dataclass(frozen=True, slots=True, eq=False)
class Prelude:
    """Ids, and weights of ids, that are computed before the lookups.

    Attributes:
        model: takes graph inputs, gives int64 [rows, ids], and float32 [rows, ids] of weights; None
            where nothing is left to compute.
        grids: tensor -> its grid, out of an output of `model`.
        refused: tensor -> why it cannot be computed apart.
    """

    model: ir.Model | None
    grids: Mapping[ir.Value, IdGrid]
    refused: Mapping[ir.Value, str]


def extract_prelude(
    model: ir.Model,
    ids: Sequence[ir.Value],
    axes: Mapping[str, InputAxis],
    weights: Sequence[ir.Value] = (),
) -> Prelude:
    """Return a model that computes tensors of ids, and of weights, from the inputs of `model`.

    Only what is proven to keep the rows of a batch apart is computed apart.

    Args:
        model: in normal form; it is not changed.
        ids: distinct integer tensors of its main graph.
        axes: what axis 0 of its inputs counts.
        weights: distinct float32 tensors of it.
    """
    grids: dict[ir.Value, IdGrid] = {}
    refused: dict[ir.Value, str] = {}
    names = [f"{_IDS}{index}" for index in range(len(ids))]
    names += [f"{_WEIGHTS}{index}" for index in range(len(weights))]
    for name, value in zip(names, [*ids, *weights], strict=True):
        found = _grid_of(model, value, axes, name)
        if isinstance(found, IdGrid):
            grids[value] = found
        else:
            refused[value] = found
    if not grids:
        return Prelude(None, grids, refused)
    return Prelude(_computing(model, grids), grids, refused)


def _grid_of(
    model: ir.Model, value: ir.Value, axes: Mapping[str, InputAxis], name: str
) -> IdGrid | str:
    """Return the grid of a tensor of ids once it is computed, or why it cannot be."""
    if value.shape is None:
        return "the shape of its ids is not known before the model runs"
    try:
        part = _extracted(model, [value])
        own = {str(each.name): axes[str(each.name)] for each in part.graph.inputs}
        axis = None
        if any(each.kind != "none" for each in own.values()):
            proof = prove_rows(part, own)
            if not proof.independent:
                return f"rows of the batch meet in the arithmetic of its ids: {proof.reason}"
            axis = proof.output_axes[str(value.name)]
            if axis is None:
                return "its ids are the same for all rows, though made from some; send them instead"
    except (AnabranchError, ValueError) as error:
        return f"its ids cannot be computed apart: {error}"
    sizes = [size for index, size in enumerate(value.shape) if index != axis]
    if not all(isinstance(size, int) for size in sizes):
        return "the number of its ids varies from request to request; export with a fixed length"
    shape = tuple(int(str(size)) for size in sizes)
    count = prod(shape)
    return IdGrid(axis, 1, shape, (IdRun(name, (0, count)),)) if count else "it looks up nothing"


def _computing(model: ir.Model, grids: Mapping[ir.Value, IdGrid]) -> ir.Model:
    part = _extracted(model, list(grids))
    graph = part.graph
    for index, grid in enumerate(grids.values()):
        value = graph.outputs[index]
        rank = len(grid.shape) + 1
        new: list[ir.Node] = []
        name = grid.runs[0].source
        dtype = ir.DataType.FLOAT if name.startswith(_WEIGHTS) else ir.DataType.INT64
        if value.dtype is not dtype:
            new.append(ir.node("Cast", [value], {"to": dtype}))
        if grid.row_axis:
            order = [grid.row_axis, *(axis for axis in range(rank) if axis != grid.row_axis)]
            source = new[-1].outputs[0] if new else value
            new.append(ir.node("Transpose", [source], {"perm": order}))
        source = new[-1].outputs[0] if new else value
        count = grid.runs[0].length
        has_rows = grid.row_axis is not None
        new.append(ir.node("Reshape", [source, integers(graph, [-1 if has_rows else 1, count])]))
        for step, node in enumerate(new):
            node.outputs[0].name = f"{name}_{step}"
            graph.append(node)
        last = new[-1].outputs[0]
        last.name = name
        last.type = ir.TensorType(dtype)
        last.shape = ir.Shape([None if has_rows else 1, count])
        graph.outputs[index] = last
    return part


def _extracted(model: ir.Model, outputs: Sequence[ir.Value]) -> ir.Model:
    """Return the part of a model that computes `outputs`, with the inputs that it needs."""
    graph = ir.convenience.extract(model.graph, list(model.graph.inputs), list(outputs))
    for value in [value for value in graph.inputs if not value.uses()]:
        graph.inputs.remove(value)
    graph.name = "prelude"
    graph.opset_imports.update(model.opset_imports)
    return ir.Model(graph, ir_version=model.ir_version)
