"""Writing graphs: files that a backend loads, and bytes for a trial run."""

from pathlib import Path
from typing import Final

import onnx_ir as ir

__all__ = ["EXTERNAL_BYTES", "graph_bytes", "write_graph"]

EXTERNAL_BYTES: Final = 1 << 30
"""Weights of a graph above this lie beside it: a protobuf holds 2 GiB at most."""


def graph_bytes(model: ir.Model) -> bytes:
    """Return a graph as the bytes of an ONNX file, weights inside; `model` stays as it is."""
    return ir.to_proto(_bare(model)).SerializeToString()


def write_graph(model: ir.Model, path: Path) -> None:
    """Write a graph to a new file; with many weights, they go to `path` + `.data`."""
    weights = sum(
        value.const_value.nbytes
        for value in model.graph.initializers.values()
        if value.const_value is not None
    )
    external = f"{path.name}.data" if weights > EXTERNAL_BYTES else None
    ir.save(_bare(model), path, external_data=external)


def _bare(model: ir.Model) -> ir.Model:
    """Return a copy that stands alone, without types and shapes of inner values.

    Where they are stored, ONNX Runtime fuses in another way, which is slower. Weights that lie
    beside the original would be looked for beside the copy.
    """
    copy = model.clone()
    for value in copy.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            value.const_value = ir.Tensor(
                tensor.numpy(), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name
            )
    for node in ir.traversal.RecursiveGraphIterator(copy.graph):
        for value in node.outputs:
            if not value.is_graph_output():
                value.type = None
                value.shape = None
    return copy
