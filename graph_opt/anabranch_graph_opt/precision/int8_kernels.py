"""Whether a processor multiplies eight bits exactly.

Some add pairs of products in 16 bits and cut off what does not fit. Weights of seven bits are safe
there, and no worse than a wrong sum.
"""

from typing import Final

import numpy as np
import onnx_ir as ir

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.precision.int8_columns import WeightLimit
from anabranch_graph_opt.running import ModelRunner

__all__ = ["weight_limit"]

_DEPTH: Final = 64
_COLUMNS: Final = 32
_ROWS: Final = (1, 9)
"""One row and several may have kernels of their own."""


def weight_limit(runner: ModelRunner) -> WeightLimit:
    """Return the largest weight of eight bits with which products are exact.

    Args:
        runner: runs a small graph on this processor.
    """
    weights = np.full((_DEPTH, _COLUMNS), 127, np.int8)
    model = graph_bytes(_product(weights))
    for rows in _ROWS:
        numbers = np.full((rows, _DEPTH), 255, np.uint8)
        (found,) = runner.run(model, {"x": numbers}).values()
        if not np.array_equal(found, numbers.astype(np.int32) @ weights.astype(np.int32)):
            return 63
    return 127


def _product(weights: np.ndarray) -> ir.Model:
    x = ir.Value(
        name="x", type=ir.TensorType(ir.DataType.UINT8), shape=ir.Shape(["N", weights.shape[0]])
    )
    w = ir.Value(
        name="w",
        type=ir.TensorType(ir.DataType.INT8),
        shape=ir.Shape(weights.shape),
        const_value=ir.tensor(weights, name="w"),
    )
    node = ir.node("MatMulInteger", [x, w])
    y = node.outputs[0]
    y.name, y.type = "y", ir.TensorType(ir.DataType.INT32)
    y.shape = ir.Shape(["N", weights.shape[1]])
    graph = ir.Graph([x], [y], nodes=[node], initializers=[w], opset_imports={"": 13}, name="exact")
    return ir.Model(graph, ir_version=8)
