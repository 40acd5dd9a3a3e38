"""How each ONNX operator of an id chain carries spans from its inputs to its outputs.

One function an operator family, registered by operator name. A rule gets the node and the spans of
its inputs (None for an input left out) and returns one span an output.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.value_spans import (
    UNKNOWN,
    Floats,
    Span,
    combine,
    constant,
    moved,
    opaque,
    summary,
)

__all__ = ["RULES", "SpanRule", "axes_of", "looked_up"]

_EITHER: Final[np.ufunc] = np.bitwise_or

SpanRule = Callable[[ir.Node, Sequence[Span | None]], Span | tuple[Span, ...]]
"""(node, spans of its inputs) -> span of its output, or of each. May raise where shapes clash."""


def axes_of(node: ir.Node, spans: Sequence[Span | None], index: int) -> tuple[int, ...] | None:
    """Axes of a node, from input `index` or the attribute of older operator sets."""
    if len(spans) > index and (span := spans[index]) is not None:
        return span.numbers()
    attribute = node.attributes.get("axes")
    return None if attribute is None else tuple(attribute.as_ints())


def looked_up(table: Span, ids: Span, axis: int) -> Span:
    """Span of `Gather(table, ids, axis)` with bounds from the table and slots from the ids.

    Elements stay separate where ids are known numbers; otherwise any entry may come.
    """
    if ids.fixed and table.known:
        index = ids.low.astype(np.int64)
        return moved(table, lambda part: np.take(part, index, axis=axis))
    whole = summary(table)
    if not ids.known or not table.known or axis != 0 or table.low.ndim < 1:
        return combine(lambda a, b, c, d: (a, b), whole, summary(ids))
    tail = table.low.shape[1:]
    shape = ids.low.shape + tail
    slots = np.asarray(np.bitwise_or(ids.slots, whole.slots), dtype=object)
    slots = slots.reshape(ids.low.shape + (1,) * len(tail))
    return Span(
        np.broadcast_to(whole.low, shape),
        np.broadcast_to(whole.high, shape),
        np.broadcast_to(slots, shape),
        known=True,
    )


def _need(span: Span | None) -> Span:
    return UNKNOWN if span is None else span


def _keep(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    return _need(spans[0])


def _cast(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    span, to = _need(spans[0]), ir.DataType(node.attributes["to"].as_int())
    if to is ir.DataType.BOOL:
        return Span(np.zeros_like(span.low), np.ones_like(span.high), span.slots, span.known)
    if to.is_integer():
        return Span(np.trunc(span.low), np.trunc(span.high), span.slots, span.known)
    return span


def _monotone(function: Callable[[Floats], Floats]) -> SpanRule:
    def rule(node: ir.Node, spans: Sequence[Span | None]) -> Span:
        span = _need(spans[0])
        return Span(function(span.low), function(span.high), span.slots, span.known)

    return rule


def _negate(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    span = _need(spans[0])
    return Span(-span.high, -span.low, span.slots, span.known)


def _absolute(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    span = _need(spans[0])
    high = np.maximum(np.abs(span.low), np.abs(span.high))
    low = np.where(
        (span.low <= 0) & (span.high >= 0), 0.0, np.minimum(abs(span.low), abs(span.high))
    )
    return Span(low, high, span.slots, span.known)


def _corners(function: Callable[[Floats, Floats], Floats]) -> SpanRule:
    """Rule of a function that takes its extremes at the corners of the box."""

    def bounds(a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[Floats, Floats]:
        corners = [function(x, y) for x in (a, b) for y in (c, d)]
        return np.minimum.reduce(corners), np.maximum.reduce(corners)

    def rule(node: ir.Node, spans: Sequence[Span | None]) -> Span:
        result = _need(spans[0])
        for other in spans[1:]:
            result = combine(bounds, result, _need(other))
        return result

    return rule


def _divide(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    dividend, divisor = _need(spans[0]), _need(spans[1])
    if not np.all(divisor.low > 0):
        return _unbounded(node, spans)
    first = node.inputs[0]
    whole = first is not None and first.dtype is not None and first.dtype.is_integer()

    def bounds(a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[Floats, Floats]:
        corners = [x / y for x in (a, b) for y in (c, d)]
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
        return (np.trunc(low), np.trunc(high)) if whole else (low, high)

    return combine(bounds, dividend, divisor)


def _modulo(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    def bounds(a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[Floats, Floats]:
        inside = (a >= 0) & (b < c)
        low = np.where(inside, a, np.where(a < 0, -np.maximum(d - 1, 0) * node_is_fmod, 0.0))
        return low, np.where(inside, b, d - 1)

    node_is_fmod = node.attributes.get_int("fmod", 0)
    if not np.all(_need(spans[1]).low > 0):
        return _unbounded(node, spans)
    return combine(bounds, _need(spans[0]), _need(spans[1]))


def _truth(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    return combine(lambda a, b, c, d: (0 * (a + c), 0 * (a + c) + 1), _finite(spans[0]),
                   _finite(spans[-1]))  # fmt: skip


def _finite(span: Span | None) -> Span:
    """The same shape and slots with bounds 0: for rules that ignore their inputs' bounds."""
    span = _need(span)
    zeros = np.zeros(span.low.shape)
    return Span(zeros, zeros, span.slots, span.known)


def _unbounded(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    """Right shape for an elementwise operator, no bounds."""
    result = _finite(spans[0])
    for other in spans[1:]:
        result = combine(lambda a, b, c, d: (a + c, b + d), result, _finite(other))
    shape = result.low.shape
    return Span(np.full(shape, -np.inf), np.full(shape, np.inf), result.slots, result.known)


def _where(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    condition, yes, no = (_need(span) for span in spans)
    if condition.fixed and yes.known and no.known:
        truth = condition.low != 0
        return Span(
            np.where(truth, yes.low, no.low),
            np.where(truth, yes.high, no.high),
            np.where(truth, yes.slots, no.slots),
            known=True,
        )
    either = combine(lambda a, b, c, d: (np.minimum(a, c), np.maximum(b, d)), yes, no)
    return combine(lambda a, b, c, d: (a + c, b + c), either, _finite(condition))


def _clip(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    result = _need(spans[0])
    if len(spans) > 1 and spans[1] is not None:
        result = combine(lambda a, b, c, d: (np.maximum(a, c), np.maximum(b, d)), result, spans[1])
    if len(spans) > 2 and spans[2] is not None:
        result = combine(lambda a, b, c, d: (np.minimum(a, c), np.minimum(b, d)), result, spans[2])
    return result


def _reshape(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data, target = _need(spans[0]), _need(spans[1]).numbers()
    if target is None or not data.known:
        return summary(data)
    shape = [data.low.shape[i] if size == 0 and i < data.low.ndim else size
             for i, size in enumerate(target)]  # fmt: skip
    return moved(data, lambda part: part.reshape(shape))


def _flatten(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    axis = node.attributes.get_int("axis", 1)
    return moved(_need(spans[0]), lambda part: part.reshape(
        int(np.prod(part.shape[:axis])), -1) if part.size else part)  # fmt: skip


def _squeeze(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    axes = axes_of(node, spans, 1)
    return moved(_need(spans[0]), lambda part: np.squeeze(part, axis=axes))


def _unsqueeze(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    axes = axes_of(node, spans, 1)
    if axes is None:
        return summary(_need(spans[0]))
    return moved(_need(spans[0]), lambda part: np.expand_dims(part, axes))


def _transpose(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    attribute = node.attributes.get("perm")
    order = None if attribute is None else tuple(attribute.as_ints())
    return moved(_need(spans[0]), lambda part: np.transpose(part, order))


def _slice(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data = _need(spans[0])
    bounds = [span.numbers() if span is not None else None for span in spans[1:]]
    starts, ends = bounds[0], bounds[1]
    if not data.known or starts is None or ends is None:
        return summary(data)
    axes = bounds[2] if len(bounds) > 2 and bounds[2] is not None else range(len(starts))
    steps = bounds[3] if len(bounds) > 3 and bounds[3] is not None else [1] * len(starts)
    index: list[slice] = [slice(None)] * data.low.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, None if step < 0 and end < -data.low.shape[axis] else end, step)
    return moved(data, lambda part: part[tuple(index)])


def _split(node: ir.Node, spans: Sequence[Span | None]) -> tuple[Span, ...]:
    data, axis, count = _need(spans[0]), node.attributes.get_int("axis", 0), len(node.outputs)
    sizes = _need(spans[1]).numbers() if len(spans) > 1 else None
    if sizes is None and (attribute := node.attributes.get("split")) is not None:
        sizes = tuple(attribute.as_ints())
    if not data.known:
        return (summary(data),) * count
    if sizes is None:
        chunk = -(-data.low.shape[axis] // count)
        sizes = (chunk,) * count
    ends = np.cumsum(sizes)
    return tuple(
        moved(data, lambda part, a=end - size, b=end: np.take(  # type: ignore[misc]
            part, np.arange(a, min(b, part.shape[axis])), axis=axis))
        for size, end in zip(sizes, ends, strict=True)
    )  # fmt: skip


def _concat(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    parts, axis = [_need(span) for span in spans], node.attributes["axis"].as_int()
    if not all(part.known for part in parts):
        return _union(parts)
    return Span(
        np.concatenate([part.low for part in parts], axis),
        np.concatenate([part.high for part in parts], axis),
        np.concatenate([part.slots for part in parts], axis),
        known=True,
    )


def _union(parts: Sequence[Span]) -> Span:
    result = summary(parts[0])
    for part in parts[1:]:
        result = combine(
            lambda a, b, c, d: (np.minimum(a, c), np.maximum(b, d)), result, summary(part)
        )
    return result


def _expand(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data, target = _need(spans[0]), _need(spans[1]).numbers()
    if target is None:
        return summary(data)
    return moved(data, lambda part: np.broadcast_to(
        part, np.broadcast_shapes(part.shape, target)))  # fmt: skip


def _tile(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    repeats = _need(spans[1]).numbers()
    if repeats is None:
        return summary(_need(spans[0]))
    return moved(_need(spans[0]), lambda part: np.tile(part, repeats))


def _shape(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data = _need(spans[0])
    if not data.known:
        return UNKNOWN
    start = node.attributes.get_int("start", 0)
    attribute = node.attributes.get("end")
    end = None if attribute is None else attribute.as_int()
    return constant(np.array(data.low.shape[start:end], np.int64))


def _size(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data = _need(spans[0])
    return constant(np.array(data.low.size)) if data.known else UNKNOWN


def _range(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    ends = [_need(span).numbers() for span in spans]
    if any(end is None or len(end) != 1 for end in ends):
        return UNKNOWN
    start, limit, step = (end[0] for end in ends if end is not None)
    return constant(np.arange(start, limit, step))


def _filled(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    shape = _need(spans[0]).numbers()
    if shape is None:
        return UNKNOWN
    attribute = node.attributes.get("value")
    value = 0.0 if attribute is None else float(attribute.as_tensor().numpy().reshape(-1)[0])
    return opaque(shape, value, value)


def _reduced(
    bounds: Callable[[NDArray[np.generic], tuple[int, ...] | None, bool], Floats],
) -> SpanRule:
    def rule(node: ir.Node, spans: Sequence[Span | None]) -> Span:
        data, axes = _need(spans[0]), axes_of(node, spans, 1)
        if not data.known:
            return UNKNOWN
        keep = bool(node.attributes.get_int("keepdims", 1))
        slots = np.asarray(_EITHER.reduce(data.slots, axis=axes, keepdims=keep))
        return Span(bounds(data.low, axes, keep), bounds(data.high, axes, keep),
                    np.asarray(slots, dtype=object), known=True)  # fmt: skip

    return rule


def _sum(part: NDArray[np.generic], axes: tuple[int, ...] | None, keep: bool) -> Floats:
    return np.asarray(np.sum(part, axis=axes, keepdims=keep), np.float64)


def _largest(part: NDArray[np.generic], axes: tuple[int, ...] | None, keep: bool) -> Floats:
    return np.asarray(np.max(part, axis=axes, keepdims=keep), np.float64)


def _smallest(part: NDArray[np.generic], axes: tuple[int, ...] | None, keep: bool) -> Floats:
    return np.asarray(np.min(part, axis=axes, keepdims=keep), np.float64)


def _gather(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    return looked_up(_need(spans[0]), _need(spans[1]), node.attributes.get_int("axis", 0))


def _selected(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    """Some elements of the first input, nobody knows how many."""
    return summary(_need(spans[0]))


RULES: Final[Mapping[str, SpanRule]] = MappingProxyType(
    {
        **dict.fromkeys(("Identity", "CastLike", "Dropout"), _keep),
        "Cast": _cast,
        "Relu": _monotone(lambda part: np.maximum(part, 0)),
        "Floor": _monotone(np.floor),
        "Ceil": _monotone(np.ceil),
        "Round": _monotone(np.round),
        "Sign": _monotone(np.sign),
        "Neg": _negate,
        "Abs": _absolute,
        "Add": _corners(np.add),
        "Sub": _corners(np.subtract),
        "Mul": _corners(np.multiply),
        "Min": _corners(np.minimum),
        "Max": _corners(np.maximum),
        "Div": _divide,
        "Mod": _modulo,
        **dict.fromkeys(
            ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor",
             "Not"), _truth
        ),
        **dict.fromkeys(
            ("Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Pow", "PRelu", "LeakyRelu", "BitwiseXor",
             "BitwiseAnd", "BitwiseOr", "BatchNormalization", "Softmax"), _unbounded
        ),
        "Where": _where,
        "Clip": _clip,
        "Reshape": _reshape,
        "Flatten": _flatten,
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
        "Transpose": _transpose,
        "Slice": _slice,
        "Split": _split,
        "Concat": _concat,
        "Expand": _expand,
        "Tile": _tile,
        "Shape": _shape,
        "Size": _size,
        "Range": _range,
        "ConstantOfShape": _filled,
        "ReduceSum": _reduced(_sum),
        "ReduceMax": _reduced(_largest),
        "ReduceMin": _reduced(_smallest),
        "Gather": _gather,
        **dict.fromkeys(("GatherElements", "GatherND", "Compress", "TopK"), _selected),
    }
)  # fmt: skip
"""Operator of the default domain -> rule of its first output."""
