"""Which constants of a graph are tables of rows."""

from typing import Final

import onnx_ir as ir

__all__ = ["is_table"]

_TABLE_TYPES: Final = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)


def is_table(value: ir.Value) -> bool:
    """Whether a value is a float initializer [rows, dim] with two rows or more."""
    tensor = value.const_value
    return (
        value.is_initializer()
        and tensor is not None
        and tensor.dtype in _TABLE_TYPES
        and len(tensor.shape) == 2
        and tensor.shape.numpy()[0] >= 2
        and tensor.shape.numpy()[1] >= 1
    )
