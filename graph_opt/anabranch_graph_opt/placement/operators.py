"""Operators by what they do to ids."""

from typing import Final

__all__ = ["COMPUTABLE", "ID_OPERATORS", "MOVING"]

# fmt: off
ID_OPERATORS: Final = frozenset({
    "Abs", "Add", "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "Cast", "CastLike", "Ceil", "Clip", "Concat", "ConstantOfShape", "CumSum",
    "Div", "Equal", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements",
    "GatherND", "Greater", "GreaterOrEqual", "Identity", "If", "IsInf", "IsNaN", "Less",
    "LessOrEqual", "Log", "Loop", "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot",
    "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd",
    "ReduceSum", "Reshape", "Round", "Scatter", "ScatterElements", "ScatterND", "Shape", "Sign",
    "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Trilu",
    "Unsqueeze", "Where", "Xor",
})
"""Integer arithmetic and what moves elements: what ids are made of. No layer of a network."""

MOVING: Final = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape",
    "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
})
"""What only moves elements about, and does the same to labels as to numbers."""

COMPUTABLE: Final = MOVING | frozenset({
    "Abs", "Add", "And", "Cast", "ConstantOfShape", "Cos", "Div", "Equal", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or",
    "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Shape", "Size", "Sub",
    "Where",
})
"""What is computed where all inputs are known: sizes, columns, offsets."""
# fmt: on
