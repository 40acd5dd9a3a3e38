"""Layers compute in eight bits, in the form that ONNX Runtime makes one kernel of.

    x -> QuantizeLinear -> MatMulInteger -> Cast -> Mul -> Add (bias)
                                                    |
                         DequantizeLinear(1) -> Mul(scales of columns)

Activations have one fixed scale each, so what becomes of a row depends on that row alone. On
request the scale comes from the batch instead (DynamicQuantizeLinear); rows then change each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import common as library

from anabranch_graph_opt.precision.activation_ranges import ActivationRange
from anabranch_graph_opt.precision.int8_columns import WeightLimit, quantised_columns
from anabranch_graph_opt.precision.layers import DenseLayer, find_layers

__all__ = ["Int8LayersPass"]

_OLDEST_OPSET: Final = 11
"""The first with all operators of both forms."""
_PREFIX: Final = "ab_int8"


@dataclass(frozen=True, slots=True, eq=False)
class _Quantised:
    """An activation in eight bits."""

    numbers: ir.Value
    scale: ir.Value
    zero_point: ir.Value


class Int8LayersPass(ir.passes.InPlacePass):
    """Rewrites the layers of a model in normal form; others keep their weights and names.

    Requires an operator set of 11 or newer; changes nothing in older ones.

    Ensures that outputs keep names, types and shapes, and that `weights` have no use in a layer.

    Args:
        activations: what each activation was seen to be, by name of its value; a layer whose
            activation is missing stays as it is. None: scales come from the batch.
        limit: largest weight of eight bits.

    Attributes:
        weights: names of the initializers that layers held before, one for each layer.
    """

    def __init__(
        self, activations: Mapping[str, ActivationRange] | None, limit: WeightLimit = 127
    ) -> None:
        super().__init__()
        self._activations = activations
        self._limit: WeightLimit = limit
        self.weights: list[str] = []

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite in place."""
        if model.opset_imports.get("", 0) < _OLDEST_OPSET:
            return ir.passes.PassResult(model, False)
        writer = _Writer(model.graph, self._activations, self._limit)
        for layer in find_layers(model):
            if writer.rewrite(layer):
                self.weights.append(str(layer.weight.name))
        if self.weights:
            library.RemoveUnusedNodesPass()(model)
        return ir.passes.PassResult(model, bool(self.weights))


@dataclass(slots=True, eq=False)
class _Writer:
    """Rewrites one layer after the other; equal activations and weights are made once."""

    graph: ir.Graph
    activations: Mapping[str, ActivationRange] | None
    limit: WeightLimit
    _count: int = 0
    _quantised: dict[ir.Value, _Quantised] = field(default_factory=dict)
    _weights: dict[tuple[ir.Value, bool, float], tuple[ir.Value, ir.Value] | None] = field(
        default_factory=dict
    )

    def rewrite(self, layer: DenseLayer) -> bool:
        """Return whether the layer was rewritten."""
        activations = self.activations
        if activations is not None and str(layer.data.name) not in activations:
            return False
        weight = self._weight(layer)
        if weight is None:
            return False
        numbers, scales = weight
        data = self._data(layer)
        node, old = layer.node, layer.node.outputs[0]
        product = self._add(node, "MatMulInteger", [data.numbers, numbers, data.zero_point])
        product.type, product.shape = ir.TensorType(ir.DataType.INT32), old.shape
        sums = self._add(node, "Cast", [product], to=ir.DataType.FLOAT)
        sums.shape = old.shape
        scale = self._add(node, "Mul", [data.scale, scales])
        made = self._add(node, "Mul", [sums, scale])
        made.shape = old.shape
        bias = layer.bias
        if bias is not None:
            if layer.beta != 1.0:
                bias = self._add(
                    node, "Mul", [bias, self._constant(np.array(layer.beta, np.float32))]
                )
            made = self._add(node, "Add", [made, bias])
        made.type, made.shape = old.type, old.shape
        name = old.name
        ir.convenience.replace_all_uses_with(old, made, replace_graph_outputs=True)
        self.graph.remove(node, safe=True)
        made.name = name  # callers and ranges know it by that
        return True

    def _data(self, layer: DenseLayer) -> _Quantised:
        data = layer.data
        known = self._quantised.get(data)
        if known is None:
            known = self._dynamic(layer.node, data)
            self._quantised[data] = known
        return known

    def _dynamic(self, before: ir.Node, data: ir.Value) -> _Quantised:
        if self.activations is not None:
            return self._fixed(before, data, self.activations[str(data.name)])
        node = ir.Node("", "DynamicQuantizeLinear", [data], num_outputs=3)
        self.graph.insert_before(before, node)
        for value, kind in zip(node.outputs, ("UINT8", "FLOAT", "UINT8"), strict=True):
            value.name = self._name()
            value.type = ir.TensorType(ir.DataType[kind])
            value.shape = ir.Shape([])
        node.outputs[0].shape = data.shape
        return _Quantised(*node.outputs)

    def _fixed(self, before: ir.Node, data: ir.Value, seen: ActivationRange) -> _Quantised:
        scale = self._constant(np.array(seen.scale, np.float32))
        zero_point = self._constant(np.array(seen.zero_point, np.uint8))
        numbers = self._add(before, "QuantizeLinear", [data, scale, zero_point])
        numbers.type, numbers.shape = ir.TensorType(ir.DataType.UINT8), data.shape
        # The scale itself, but not as a constant: ONNX Runtime would multiply it into the scales
        # of columns when it loads the graph, and then it does not see one kernel in these nodes.
        one = self._constant(np.array(1, np.uint8))
        return _Quantised(numbers, self._add(before, "DequantizeLinear", [one, scale]), zero_point)

    def _weight(self, layer: DenseLayer) -> tuple[ir.Value, ir.Value] | None:
        """Return numbers and scales of a layer's matrix; None where it is not finite."""
        key = (layer.weight, layer.is_transposed, layer.alpha)
        if key not in self._weights:
            matrix = layer.matrix() * np.float32(layer.alpha)
            if not np.isfinite(matrix).all():
                self._weights[key] = None
            else:
                numbers, scales = quantised_columns(matrix, self.limit)
                self._weights[key] = (
                    self._constant(np.ascontiguousarray(numbers)),
                    self._constant(scales),
                )
        return self._weights[key]

    def _add(
        self, before: ir.Node, operator: str, inputs: Sequence[ir.Value], **attributes: object
    ) -> ir.Value:
        # onnx-ir takes any value that an attribute can have, and declares fewer.
        node = ir.node(operator, list(inputs), attributes)  # type: ignore[arg-type]
        value = node.outputs[0]
        value.name = self._name()
        value.type = ir.TensorType(ir.DataType.FLOAT)
        self.graph.insert_before(before, node)
        return value

    def _constant(self, array: NDArray[Any]) -> ir.Value:
        name = self._name()
        value = ir.Value(
            name=name,
            shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            const_value=ir.tensor(array, name=name),
        )
        self.graph.register_initializer(value)
        return value

    def _name(self) -> str:
        self._count += 1
        return f"{_PREFIX}_{self._count}"
