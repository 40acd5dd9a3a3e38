"""Takes a part of a graph out, from the rows of a lookup on, so that it can be run alone."""

from collections.abc import Sequence

import onnx_ir as ir

__all__ = ["pooled_part"]


def pooled_part(model: ir.Model, rows: ir.Value, outputs: Sequence[ir.Value]) -> ir.Model | None:
    """Return what computes float32 `outputs` of `rows` and inputs; None where it is not to be had.

    Args:
        model: that the values are in; it is not changed.
        rows: of a lookup, which become the first input.
        outputs: of the part.
    """
    try:
        graph = ir.convenience.extract(model.graph, [rows, *model.graph.inputs], list(outputs))
    except (KeyError, ValueError, AttributeError):
        return None
    for value in list(graph.inputs):
        if value.name != rows.name and not value.uses():
            graph.inputs.remove(value)
    for value in (graph.inputs[0], *graph.outputs):
        if value.type is None:
            value.type = ir.TensorType(ir.DataType.FLOAT)
        elif value.type.dtype is not ir.DataType.FLOAT:
            return None
        value.shape = None
    graph.name = "pooling"
    graph.opset_imports.update(model.opset_imports)
    return ir.Model(graph, ir_version=model.ir_version)
