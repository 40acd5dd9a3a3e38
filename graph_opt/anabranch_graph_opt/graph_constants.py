"""Integer constants for nodes that rewrites add."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

__all__ = ["integers"]


def integers(graph: ir.Graph, numbers: Sequence[int]) -> ir.Value:
    """Return an int64 initializer of one axis of the main `graph`; equal ones are shared."""
    name = "ab_ints_" + "_".join(str(number).replace("-", "m") for number in numbers)
    if (known := graph.initializers.get(name)) is not None:
        return known
    tensor = ir.tensor(np.array(numbers, np.int64), name=name)
    value = ir.Value(
        name=name,
        shape=ir.Shape([len(numbers)]),
        type=ir.TensorType(ir.DataType.INT64),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value
