"""How each ONNX operator of an id chain carries spans from its inputs to its outputs.

Rules are registered by operator name: arithmetic and movement in modules of their own, and what
turns shapes into numbers here.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx_ir as ir

from anabranch_graph_opt import span_arithmetic, span_movement
from anabranch_graph_opt.value_spans import UNKNOWN, Span, SpanRule, constant, need, opaque

__all__ = ["RULES"]


def _shape(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data = need(spans[0])
    if not data.known:
        return UNKNOWN
    start = node.attributes.get_int("start", 0)
    attribute = node.attributes.get("end")
    end = None if attribute is None else attribute.as_int()
    return constant(np.array(data.low.shape[start:end], np.int64))


def _size(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data = need(spans[0])
    return constant(np.array(data.low.size)) if data.known else UNKNOWN


def _range(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    ends = [need(span).numbers() for span in spans]
    if any(end is None or len(end) != 1 for end in ends):
        return UNKNOWN
    start, limit, step = (end[0] for end in ends if end is not None)
    return constant(np.arange(start, limit, step))


def _filled(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    shape = need(spans[0]).numbers()
    if shape is None:
        return UNKNOWN
    attribute = node.attributes.get("value")
    value = 0.0 if attribute is None else float(attribute.as_tensor().numpy().reshape(-1)[0])
    return opaque(shape, value, value)


RULES: Final[Mapping[str, SpanRule]] = MappingProxyType(
    {
        **span_arithmetic.RULES,
        **span_movement.RULES,
        "ConstantOfShape": _filled,
        "Range": _range,
        "Shape": _shape,
        "Size": _size,
    }
)
"""Operator of the default domain -> rule."""
