"""Spans through operators that move, pick, repeat or add up elements."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.value_spans import (
    UNKNOWN,
    Floats,
    Span,
    SpanRule,
    axes_of,
    combine,
    constant,
    moved,
    need,
    opaque,
    summary,
)

__all__ = ["RULES"]

_EITHER: Final[np.ufunc] = np.bitwise_or


def _reshape(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data, target = need(spans[0]), need(spans[1]).numbers()
    if target is None or not data.known:
        return summary(data)
    shape = [data.low.shape[i] if size == 0 and i < data.low.ndim else size
             for i, size in enumerate(target)]  # fmt: skip
    return moved(data, lambda part: part.reshape(shape))


def _flatten(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    axis = node.attributes.get_int("axis", 1)
    return moved(need(spans[0]), lambda part: part.reshape(
        int(np.prod(part.shape[:axis])), -1) if part.size else part)  # fmt: skip


def _squeeze(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    axes = axes_of(node, spans, 1)
    return moved(need(spans[0]), lambda part: np.squeeze(part, axis=axes))


def _unsqueeze(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    axes = axes_of(node, spans, 1)
    if axes is None:
        return summary(need(spans[0]))
    return moved(need(spans[0]), lambda part: np.expand_dims(part, axes))


def _transpose(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    attribute = node.attributes.get("perm")
    order = None if attribute is None else tuple(attribute.as_ints())
    return moved(need(spans[0]), lambda part: np.transpose(part, order))


def _slice(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data = need(spans[0])
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
    data, axis, count = need(spans[0]), node.attributes.get_int("axis", 0), len(node.outputs)
    sizes = need(spans[1]).numbers() if len(spans) > 1 else None
    if sizes is None and (attribute := node.attributes.get("split")) is not None:
        sizes = tuple(attribute.as_ints())
    if not data.known:
        return (summary(data),) * count
    if sizes is None:
        chunk = -(-data.low.shape[axis] // count)
        sizes = (chunk,) * count
    ends = np.cumsum(sizes)
    return tuple(
        # mypy cannot infer a lambda with defaults; they bind the loop's values.
        moved(data, lambda part, a=end - size, b=end: np.take(  # type: ignore[misc]
            part, np.arange(a, min(b, part.shape[axis])), axis=axis))
        for size, end in zip(sizes, ends, strict=True)
    )  # fmt: skip


def _concat(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    parts, axis = [need(span) for span in spans], node.attributes["axis"].as_int()
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
    data, target = need(spans[0]), need(spans[1]).numbers()
    if target is None:
        return summary(data)
    return moved(data, lambda part: np.broadcast_to(
        part, np.broadcast_shapes(part.shape, target)))  # fmt: skip


def _tile(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    repeats = need(spans[1]).numbers()
    if repeats is None:
        return summary(need(spans[0]))
    return moved(need(spans[0]), lambda part: np.tile(part, repeats))


def _reduced(
    bounds: Callable[[NDArray[np.generic], tuple[int, ...] | None, bool], Floats],
) -> SpanRule:
    def rule(node: ir.Node, spans: Sequence[Span | None]) -> Span:
        data, axes = need(spans[0]), axes_of(node, spans, 1)
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
    return _looked_up(need(spans[0]), need(spans[1]), node.attributes.get_int("axis", 0))


def _all_positions(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    """`NonZero`, as if nothing were zero: it keeps shapes known that nobody can know."""
    mask = need(spans[0])
    if not mask.known:
        return UNKNOWN
    shape = mask.low.shape
    return constant(np.indices(shape).reshape(len(shape), -1))


def _gather_nd(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    data, ids = need(spans[0]), need(spans[1])
    if not data.known or not ids.fixed or node.attributes.get_int("batch_dims", 0) != 0:
        return summary(data)
    index = tuple(np.moveaxis(ids.low.astype(np.int64), -1, 0))
    return moved(data, lambda part: part[index])


def _top(node: ir.Node, spans: Sequence[Span | None]) -> tuple[Span, ...]:
    data, count = need(spans[0]), need(spans[1]).numbers()
    if not data.known or count is None:
        return (summary(data), UNKNOWN)
    axis = node.attributes.get_int("axis", -1)
    size = data.low.shape[axis]
    slots = np.asarray(_EITHER.reduce(data.slots, axis=axis, keepdims=True), dtype=object)
    kept = Span(
        np.repeat(data.low.min(axis=axis, keepdims=True), count[0], axis),
        np.repeat(data.high.max(axis=axis, keepdims=True), count[0], axis),
        np.repeat(slots, count[0], axis),
        known=True,
    )
    return (kept, opaque(kept.low.shape, 0, size - 1))


def _recurrent(node: ir.Node, spans: Sequence[Span | None]) -> tuple[Span, ...]:
    steps, width = need(spans[0]), node.attributes.get_int("hidden_size", 0)
    if not steps.known or steps.low.ndim != 3 or node.attributes.get_int("layout", 0) != 0:
        return (UNKNOWN, UNKNOWN, UNKNOWN)
    both = 2 if node.attributes.get_string("direction", "") == "bidirectional" else 1
    count, rows = steps.low.shape[:2]
    last = opaque((both, rows, width))
    return (opaque((count, both, rows, width)), last, last)


def _selected(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    """Some elements of the first input, nobody knows how many."""
    return summary(need(spans[0]))


def _looked_up(table: Span, ids: Span, axis: int) -> Span:
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


def _unlimited(node: ir.Node, spans: Sequence[Span | None]) -> Span:
    """The shape of the first input, with nothing known of its elements."""
    data = need(spans[0])
    return opaque(data.low.shape) if data.known else UNKNOWN


RULES: Final[Mapping[str, SpanRule]] = {
    **dict.fromkeys(("GatherElements", "Compress"), _selected),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _unlimited),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "NonZero": _all_positions,
    "ReduceMax": _reduced(_largest),
    "ReduceMin": _reduced(_smallest),
    "ReduceSum": _reduced(_sum),
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _top,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
