"""Turns the weights of a graph into inputs, so that a device can be given others without a build.

A graph that was captured on a device reads its weights where they lay then. With weights as inputs
they lie in memory of the executor's, which a copy in its stream replaces between two replays; and
versions of one training job, which differ in weights alone, share whatever was built for one.

Only what kernels read on the device is lifted. What decides shapes, or is read on the host (axes,
bounds of Clip, repeats of Tile), stays in the graph, and its numbers count into the structure.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.structure_hashes import structure_hash

__all__ = ["LiftedGraph", "lift_weights"]

_EVERY: Final = frozenset(range(16))

_ON_DEVICE: Final[Mapping[str, frozenset[int]]] = {
    **dict.fromkeys(
        (
            "Add", "And", "Concat", "Div", "Einsum", "Equal", "FusedGemm", "FusedMatMul", "Gemm",
            "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "MatMul", "Max", "Mean", "Min",
            "Mod", "Mul", "Pow", "PRelu", "Sub", "Sum", "Where", "Gelu", "BiasGelu", "FastGelu",
            "LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization", "BatchNormalization", "InstanceNormalization",
            "GroupNormalization", "Conv", "ConvTranspose", "FusedConv", "LSTM", "GRU", "RNN",
            "Attention", "MultiHeadAttention",
        ),
        _EVERY,
    ),
    "Gather": frozenset({0}),
    "GatherElements": frozenset({0}),
    "GatherND": frozenset({0}),
}  # fmt: skip
"""Operator -> positions of inputs that its CUDA kernel reads on the device, and that need not be
constant (kernel declarations of ONNX Runtime 1.31: no `InputMemoryType(OrtMemTypeCPUInput, ...)`,
no `TryGetConstantInput`). Whatever is not listed keeps its constants."""


@dataclass(frozen=True, slots=True, eq=False)
class LiftedGraph:
    """A graph whose weights are inputs.

    Attributes:
        model: inputs as before, then the weights; no initializer of those is left.
        weights: what was lifted, in the order of the new inputs.
        structure: `sha256:` and a digest of all but the numbers of those weights. Graphs with the
            same structure compute the same function of inputs and weights.
    """

    model: ir.Model
    weights: tuple[ir.TensorProtocol, ...]
    structure: str


def lift_weights(model: ir.Model) -> LiftedGraph:
    """Return a copy of a graph with its floating-point weights as inputs.

    Inputs are named as their weights were. Nothing is computed; tensors are shared with `model`.

    Args:
        model: as it is run: what can be computed from constants alone has been.
    """
    copy = model.clone()
    graph = copy.graph
    lifted: list[ir.TensorProtocol] = []
    kept: list[tuple[str, ir.TensorProtocol]] = []
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or not any(True for _ in value.uses()):
            continue
        if _is_weight(value, tensor):
            del graph.initializers[name]
            if value.is_graph_input():  # a default that callers may override: nobody does here
                graph.inputs.remove(value)
            value.const_value = None
            value.dtype, value.shape = tensor.dtype, ir.Shape(tensor.shape.numpy())
            graph.inputs.append(value)
            lifted.append(tensor)
        else:
            kept.append((name, tensor))
    digest = hashlib.sha256(structure_hash(copy, OptimizeOptions()).encode())
    for words in _kept_numbers(kept):
        digest.update(words)
    return LiftedGraph(copy, tuple(lifted), f"sha256:{digest.hexdigest()}")


def _is_weight(value: ir.Value, tensor: ir.TensorProtocol) -> bool:
    """Whether every use of an initializer reads it on the device, and none in an inner graph."""
    if not tensor.dtype.is_floating_point() or value.is_graph_output():
        return False
    return all(
        use.node.graph is value.graph and use.idx in _ON_DEVICE.get(use.node.op_type, frozenset())
        for use in value.uses()
    )


def _kept_numbers(kept: list[tuple[str, ir.TensorProtocol]]) -> Iterator[bytes]:
    """Yield the numbers of constants that stay, in the order of the graph."""
    for _, tensor in kept:
        yield f"{tensor.dtype} {tensor.shape}".encode()
        yield tensor.tobytes()
