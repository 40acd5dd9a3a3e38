"""Computes what a graph computes from constants alone: shapes, columns, conditions.

Weights keep their names: nothing is computed from a float initializer of the original, since a
delta may bring a new one.
"""

from collections.abc import Set
from typing import Final

import onnx_ir as ir
from onnxscript.optimizer import fold_constants

from anabranch_graph_opt.result_sizes import result_size

__all__ = ["StaticNumbersPass", "made_of_constants"]

_MAX_INPUT: Final = 4096
_MAX_OUTPUT: Final = 65536
"""Elements of constants that are read and made at most: tables are never looked at."""
_MAX_COMPUTED: Final = 2**24
"""Elements that may be computed to see that."""


class StaticNumbersPass(ir.passes.InPlacePass):
    """Folds constants, and branches that constants decide.

    Ensures that the float initializers named `weights` are neither read nor replaced.

    Args:
        weights: names of initializers that may be updated later.
    """

    def __init__(self, weights: Set[str]) -> None:
        super().__init__()
        self._weights = weights

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold in place."""
        result = fold_constants(
            model,
            input_size_limit=_MAX_INPUT,
            output_size_limit=_MAX_OUTPUT,
            should_fold=self._should_fold,
        )
        return ir.passes.PassResult(model, result.modified)

    def _should_fold(self, node: ir.Node) -> bool | None:
        reads_weight = any(
            value is not None and value.is_initializer() and value.name in self._weights
            for value in node.inputs
        )
        return False if reads_weight or _is_large(node) else None


def _is_large(node: ir.Node) -> bool:
    """Whether a node of constants might make far more numbers than it reads."""
    tensors = [None if value is None else value.const_value for value in node.inputs]
    if any(tensor is not None and tensor.size > _MAX_INPUT for tensor in tensors):
        return False  # not read anyway
    if node.op_type == "Constant":
        return False
    try:
        arrays = [None if tensor is None else tensor.numpy() for tensor in tensors]
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        return result_size(node.op_type, arrays, attributes) > _MAX_COMPUTED
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError):
        return True  # malformed, or numbers that are not there


def made_of_constants(node: ir.Node) -> int:
    """Return how many numbers a node of few constants makes at most; 0 for any other node."""
    tensors = [value.const_value for value in node.inputs if value is not None]
    arrays = [tensor.numpy() for tensor in tensors if tensor is not None and tensor.size <= 64]
    if not arrays or len(arrays) < len(tensors):
        return 0
    return result_size(node.op_type, arrays, {})
