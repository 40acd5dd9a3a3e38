"""What the input of a product is put together from, column by column, for as far as it matters.

Columns matter where some are the user's and others are not. Two layouts are followed: parts that
lie side by side in each row of axis 0, through changes of shape as well; and parts that lie side by
side on the last axis, where a difference of two values, or one that is repeated along another axis,
is a sum of the products of what it is made of.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import onnx_ir as ir

__all__ = ["Term", "last_axis_terms", "row_sizes", "row_terms"]

_DEEPEST: Final = 24
"""Nodes that are followed from a product upwards."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A value that is multiplied by some of the rows of a weight.

    Attributes:
        value: with its columns on the last axis, or flat in each row of axis 0.
        begin: first row of the weight.
        end: one behind the last.
        is_negative: whether the product is subtracted.
        is_whole: whether its other axes are those of the product's input; if not, it is repeated
            along them.
    """

    value: ir.Value
    begin: int
    end: int
    is_negative: bool = False
    is_whole: bool = True


def row_terms(value: ir.Value, own: Collection[ir.Value]) -> list[Term]:
    """Return what lies side by side in each row of `value`, [rows, columns].

    Args:
        value: input of a product.
        own: values of the user; what is of one side alone is not taken apart.
    """
    terms = []
    begin = 0
    for part in _row_parts(value, own, _DEEPEST):
        width = prod(row_sizes(part) or (0,))
        terms.append(Term(part, begin, begin + width))
        begin += width
    return terms


def last_axis_terms(value: ir.Value, own: Collection[ir.Value]) -> list[Term]:
    """Return what lies side by side on the last axis of `value`, differences taken apart.

    Args:
        value: input of a product.
        own: values of the user.
    """
    terms = []
    begin = 0
    for part in _last_parts(value, own, _DEEPEST):
        width = _last_size(part) or 0
        terms += _linear(Term(part, begin, begin + width), width, own, _DEEPEST)
        begin += width
    return terms


def row_sizes(value: ir.Value) -> tuple[int, ...] | None:
    """Return the sizes of all axes but the first; None where they are not fixed."""
    if value.shape is None or len(value.shape) < 2:
        return None
    sizes = tuple(size for size in value.shape[1:] if isinstance(size, int) and size > 0)
    return sizes if len(sizes) == len(value.shape) - 1 else None


def _row_parts(value: ir.Value, own: Collection[ir.Value], depth: int) -> list[ir.Value]:
    if value in own or depth == 0:
        return [value]
    parts = [part for inner in _side_by_side(value) for part in _row_parts(inner, own, depth - 1)]
    return parts if any(part in own for part in parts) else [value]


def _side_by_side(value: ir.Value) -> Sequence[ir.Value]:
    """Return values whose rows, one behind the other, are the rows of `value`."""
    node, sizes = value.producer(), row_sizes(value)
    if node is None or sizes is None or node.domain not in ("", "ai.onnx"):
        return ()
    inputs = [each for each in node.inputs if each is not None]
    if node.op_type in ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"):
        before = row_sizes(inputs[0])
        # As many elements a row means as many rows: nothing moved from one row to another.
        return inputs[:1] if before is not None and prod(before) == prod(sizes) else ()
    if node.op_type != "Concat":
        return ()
    axis = node.attributes.get_int("axis", 0) or 0
    axis = axis + len(sizes) + 1 if axis < 0 else axis
    shapes = [row_sizes(each) for each in inputs]
    is_flat = all(shape is not None and prod(shape[: axis - 1]) == 1 for shape in shapes)
    return inputs if axis >= 1 and is_flat else ()


def _last_parts(value: ir.Value, own: Collection[ir.Value], depth: int) -> list[ir.Value]:
    node = value.producer()
    if node is None or depth == 0 or node.domain not in ("", "ai.onnx") or value.shape is None:
        return [value]
    inputs = [each for each in node.inputs if each is not None]
    axis = node.attributes.get_int("axis", 0) or 0
    is_last = axis in (-1, len(value.shape) - 1)
    if value in own or node.op_type != "Concat" or not is_last:
        return [value]
    if any(_last_size(each) is None for each in inputs):
        return [value]
    return [part for each in inputs for part in _last_parts(each, own, depth - 1)]


def _linear(term: Term, width: int, own: Collection[ir.Value], depth: int) -> list[Term]:
    """Take a term apart where it adds something of the user, or repeats something."""
    node = term.value.producer()
    if node is None or depth == 0 or term.value in own or node.domain not in ("", "ai.onnx"):
        return [term]
    inputs = [each for each in node.inputs if each is not None]
    if node.op_type in ("Expand", "Tile") and _last_size(inputs[0]) == width:
        if node.op_type == "Tile" and not _repeats_single(node):
            return [term]
        return _linear(_of(term, inputs[0]), width, own, depth - 1)
    if node.op_type in ("Add", "Sub") and all(_last_size(each) == width for each in inputs):
        is_negated = node.op_type == "Sub"
        left = _linear(_of(term, inputs[0]), width, own, depth - 1)
        right = _linear(_of(term, inputs[1], is_negated=is_negated), width, own, depth - 1)
        if any(each.value in own for each in (*left, *right)):
            return left + right
    return [term]


def _of(term: Term, value: ir.Value, *, is_negated: bool = False) -> Term:
    return Term(value, term.begin, term.end, term.is_negative != is_negated, is_whole=False)


def _repeats_single(node: ir.Node) -> bool:
    """Whether a Tile repeats nothing but axes of size 1, as an addition does by itself."""
    source, repeats = node.inputs[0], node.inputs[1]
    if source is None or source.shape is None or repeats is None or repeats.const_value is None:
        return False
    counts = [int(count) for count in repeats.const_value.numpy().reshape(-1)]
    return all(count == 1 or size == 1 for count, size in zip(counts, source.shape, strict=True))


def _last_size(value: ir.Value) -> int | None:
    if value.shape is None or not len(value.shape):
        return None
    size = value.shape[-1]
    return size if isinstance(size, int) and size > 0 else None
