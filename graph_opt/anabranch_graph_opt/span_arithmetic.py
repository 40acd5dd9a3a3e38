"""Spans through elementwise arithmetic, comparisons and casts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from anabranch_graph_opt.value_spans import (
    Floats,
    Span,
    SpanRule,
    combine,
    need,
)

__all__ = ["RULES"]


def _keep(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    return need(spans[0])


def _cast(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    span, to = need(spans[0]), ir.DataType(node.attributes["to"].as_int())
    if to is ir.DataType.BOOL:
        return Span(np.zeros_like(span.low), np.ones_like(span.high), span.slots, span.known)
    if to.is_integer():
        return Span(np.trunc(span.low), np.trunc(span.high), span.slots, span.known)
    return span


def _monotone(function: Callable[[Floats], Floats]) -> SpanRule:
    def rule(node: ir.Node, spans: Sequence[Span | None]) -> Span:
        span = need(spans[0])
        return Span(function(span.low), function(span.high), span.slots, span.known)

    return rule


def _negate(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    span = need(spans[0])
    return Span(-span.high, -span.low, span.slots, span.known)


def _absolute(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    span = need(spans[0])
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
        result = need(spans[0])
        for other in spans[1:]:
            result = combine(bounds, result, need(other))
        return result

    return rule


def _divide(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    dividend, divisor = need(spans[0]), need(spans[1])
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
    if not np.all(need(spans[1]).low > 0):
        return _unbounded(node, spans)
    return combine(bounds, need(spans[0]), need(spans[1]))


def _truth(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    return combine(lambda a, b, c, d: (0 * (a + c), 0 * (a + c) + 1), _finite(spans[0]),
                   _finite(spans[-1]))  # fmt: skip


def _finite(span: Span | None) -> Span:
    """The same shape and slots with bounds 0: for rules that ignore their inputs' bounds."""
    span = need(span)
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
    condition, yes, no = (need(span) for span in spans)
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
    result = need(spans[0])
    if len(spans) > 1 and spans[1] is not None:
        result = combine(lambda a, b, c, d: (np.maximum(a, c), np.maximum(b, d)), result, spans[1])
    if len(spans) > 2 and spans[2] is not None:
        result = combine(lambda a, b, c, d: (np.minimum(a, c), np.minimum(b, d)), result, spans[2])
    return result


_COMPARISONS: Final = (
    "And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Xor",
)  # fmt: skip
_NOT_FOLLOWED: Final = (
    "BatchNormalization", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Exp", "LeakyRelu", "Log",
    "PRelu", "Pow", "Sigmoid", "Softmax", "Sqrt", "Tanh",
)  # fmt: skip

RULES: Final[Mapping[str, SpanRule]] = {
    **dict.fromkeys(("Identity", "CastLike", "Dropout"), _keep),
    **dict.fromkeys(_COMPARISONS, _truth),
    **dict.fromkeys(_NOT_FOLLOWED, _unbounded),
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
    "Where": _where,
    "Clip": _clip,
}
