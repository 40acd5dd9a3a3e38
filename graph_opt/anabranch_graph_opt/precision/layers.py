"""Layers that may compute with fewer bits: products of activations and a constant matrix.

Small ones are no layers here: what they save is less than what quantising their input costs.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["DenseLayer", "find_layers"]

_LEAST_DEPTH: Final = 16
"""Numbers of an activation that a layer sums over, at least."""
_LEAST_WEIGHTS: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class DenseLayer:
    """A MatMul or Gemm with a constant matrix on its right.

    Attributes:
        node: the node.
        weight: initializer of the matrix.
        is_transposed: whether the matrix is the initializer's transpose.
    """

    node: ir.Node
    weight: ir.Value
    is_transposed: bool

    @property
    def data(self) -> ir.Value:
        """What the matrix is multiplied with; it may be replaced while layers are rewritten."""
        value = self.node.inputs[0]
        assert value is not None
        return value

    @property
    def alpha(self) -> float:
        """Factor of the product."""
        return self.node.attributes.get_float("alpha", 1.0)

    @property
    def beta(self) -> float:
        """Factor of the bias."""
        return self.node.attributes.get_float("beta", 1.0)

    @property
    def bias(self) -> ir.Value | None:
        """What is added to the product by the node itself."""
        return self.node.inputs[2] if len(self.node.inputs) > 2 else None

    def matrix(self) -> NDArray[np.float32]:
        """Return the matrix, [depth, columns]; reads the weight."""
        assert self.weight.const_value is not None
        array: NDArray[np.float32] = self.weight.const_value.numpy()
        return array.T if self.is_transposed else array


def find_layers(model: ir.Model) -> tuple[DenseLayer, ...]:
    """Return the layers of a model in normal form that are large enough, in order.

    Layers inside of control flow are left alone: what runs there is seldom what takes the time.
    Weights are not read.
    """
    found = (_layer(node) for node in model.graph)
    return tuple(layer for layer in found if layer is not None)


def _layer(node: ir.Node) -> DenseLayer | None:
    if node.domain or node.op_type not in ("MatMul", "Gemm"):
        return None
    data, right = node.inputs[0], node.inputs[1]
    if data is None or right is None or data.const_value is not None:
        return None
    is_transposed = bool(node.attributes.get_int("transB", 0))
    producer = right.producer()
    if producer is not None and producer.op_type == "Transpose" and not producer.domain:
        order = producer.attributes.get("perm")
        if order is not None and list(order.as_ints()) != [1, 0]:
            return None
        right, is_transposed = producer.inputs[0], not is_transposed
    if right is None or not right.is_initializer() or right.is_graph_input():
        return None
    tensor = right.const_value
    if tensor is None or tensor.dtype is not ir.DataType.FLOAT or len(tensor.shape) != 2:
        return None
    if node.attributes.get_int("transA", 0):
        return None
    depth, columns = tensor.shape.numpy()[::-1] if is_transposed else tensor.shape.numpy()
    if depth < _LEAST_DEPTH or depth * columns < _LEAST_WEIGHTS:
        return None
    return DenseLayer(node, right, is_transposed)
