"""Gives every output of a graph its own value, under the name that callers know.

Eliminating Identity nodes and merging equal nodes can make one value of two outputs, which then
have one name.
"""

from collections.abc import Sequence

import onnx_ir as ir

__all__ = ["OutputNamesPass"]


class OutputNamesPass(ir.passes.InPlacePass):
    """Renames outputs, and puts an Identity where one value is several outputs or no node's.

    Args:
        names: of the outputs of the main graph, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = tuple(names)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite in place."""
        graph = model.graph
        changed = False
        seen: set[ir.Value] = set()
        for index, (value, name) in enumerate(zip(graph.outputs, self._names, strict=True)):
            if value in seen or (value.producer() is None and value.name != name):
                copy = ir.node("Identity", [value])
                copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
                copy.outputs[0].name = name
                graph.append(copy)
                graph.outputs[index] = copy.outputs[0]
                changed = True
            elif value.name != name:
                value.name = name
                changed = True
            seen.add(value)
        return ir.passes.PassResult(model, changed)
