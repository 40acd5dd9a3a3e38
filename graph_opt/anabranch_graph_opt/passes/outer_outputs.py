"""Gives bodies of control flow outputs of their own.

Eliminating Identity nodes leaves bodies that return a value from outside, or one of their own
inputs; ONNX Runtime refuses such a body.
"""

import onnx_ir as ir

__all__ = ["OuterOutputsPass"]


class OuterOutputsPass(ir.passes.InPlacePass):
    """Puts an Identity behind every output of a body that the body does not compute."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite in place."""
        changed = False
        for body in list(model.graph.subgraphs()):
            for index, value in enumerate(body.outputs):
                producer = value.producer()
                if producer is not None and producer.graph is body:
                    continue
                copy = ir.node("Identity", [value])
                copy.outputs[0].name = f"{value.name}_in_{body.name or 'body'}_{index}"
                copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
                body.append(copy)
                body.outputs[index] = copy.outputs[0]
                changed = True
        return ir.passes.PassResult(model, changed)
