"""Which numbers the inputs of a model may hold so that every table lookup stays inside its table.

The graph is walked forward with spans (`value_spans`); where a span reaches a lookup and leaves the
table, the input columns it came from are narrowed, and the walk is repeated until nothing leaves.
This covers offsets into stacked tables, columns of one packed input, crosses of several inputs and
sequence lengths, because all of them are arithmetic on the way. It is used to make up inputs, so a
lookup that it cannot follow costs a plausible guess and no more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.span_rules import RULES
from anabranch_graph_opt.value_spans import UNKNOWN, Span, constant, opaque, summary

__all__ = ["ColumnRanges", "find_ranges"]

_WIDEST: Final = float(2**24)
"""Where the search starts: above it a float32 column no longer holds every integer."""
_MAX_ROUNDS: Final = 60
_READ_ELEMENTS: Final = 1 << 22
"""Integer tables up to this size are read for the ids they hold."""
_COMPARISONS: Final = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
_RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})


@dataclass(frozen=True, slots=True)
class ColumnRanges:
    """Ranges of one input: one for each column of its last axis; for all where that is axis 0.

    Attributes:
        low, high: smallest and largest allowed number of each column, (columns,) int64.
        narrowed: whether a lookup or a length test limits the column at all, (columns,) bool.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    narrowed: NDArray[np.bool_]


def find_ranges(
    model: ir.Model, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, ColumnRanges], bool]:
    """Return ranges of every input in `shapes`, and whether lookups by position fit these shapes.

    Args:
        model: without local functions; not changed.
        shapes: input name -> the concrete shape to try, two rows or so.

    Returns:
        ranges by input name, and False where a position table is too small for the given sizes.
    """
    columns: dict[str, slice] = {}
    count = 0
    for name, shape in shapes.items():
        width = shape[-1] if len(shape) > 1 else 1
        columns[name] = slice(count, count + width)
        count += width
    low, high, narrowed = np.zeros(count), np.full(count, _WIDEST), np.zeros(count, np.bool_)
    fits = True
    for _ in range(_MAX_ROUNDS):
        walk = _Walk()
        for value in model.graph.inputs:
            if value.name in columns:
                walk.spans[value] = _input_span(shapes[value.name], columns[value.name], low, high)
        walk.graph(model.graph)
        fits = not walk.misfit
        if not _narrow(walk.limits, low, high, narrowed):
            hints = [hint for hint in walk.hints if not _any_narrowed(hint.span, narrowed)]
            if not _narrow(hints, low, high, narrowed):
                break
    return {
        name: ColumnRanges(
            low[part].astype(np.int64),
            high[part].astype(np.int64),
            narrowed[part],
        )
        for name, part in columns.items()
    }, fits


def _input_span(
    shape: tuple[int, ...], part: slice, low: NDArray[np.float64], high: NDArray[np.float64]
) -> Span:
    bits = np.array([1 << slot for slot in range(part.start, part.stop)], dtype=object)
    if len(shape) < 2:
        return Span(
            np.broadcast_to(low[part.start], shape),
            np.broadcast_to(high[part.start], shape),
            np.broadcast_to(np.array(bits[0], dtype=object), shape),
            known=True,
        )
    return Span(
        np.broadcast_to(low[part], shape),
        np.broadcast_to(high[part], shape),
        np.broadcast_to(bits, shape),
        known=True,
    )


@dataclass(frozen=True, slots=True)
class _Limit:
    """Elements of `span` have to lie in [low, high]."""

    span: Span
    low: float
    high: float


def _any_narrowed(span: Span, narrowed: NDArray[np.bool_]) -> bool:
    return any(narrowed[slot] for slot in _set_bits(int(summary(span).slots)))


def _narrow(
    limits: Iterable[_Limit],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    narrowed: NDArray[np.bool_],
) -> bool:
    """Shrink columns in place so that limits hold; return whether anything moved.

    A linear interpolation is exact where one column reaches the lookup through multiplications and
    additions of constants, and converges from above where several meet.
    """
    was_low, was_high = low.copy(), high.copy()
    for limit in limits:
        elements = zip(
            limit.span.slots.reshape(-1).tolist(),
            limit.span.low.reshape(-1).tolist(),
            limit.span.high.reshape(-1).tolist(),
            strict=True,
        )
        for bits, least, most in set(elements):
            reach = most - least
            for slot in _set_bits(bits):
                narrowed[slot] = True
                start, width = was_low[slot], was_high[slot] - was_low[slot]
                if width <= 0 or reach <= 0:
                    continue
                if most > limit.high:
                    bound = np.floor(start + width * max(0.0, limit.high - least) / reach + 1e-6)
                    high[slot] = min(high[slot], max(start, min(bound, was_high[slot] - 1)))
                if least < limit.low:
                    bound = np.ceil(start + width * min(1.0, (limit.low - least) / reach) - 1e-6)
                    low[slot] = max(low[slot], min(was_high[slot], max(bound, start + 1)))
    np.minimum(low, high, out=low)
    return not (np.array_equal(low, was_low) and np.array_equal(high, was_high))


def _set_bits(bits: int) -> list[int]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


@dataclass(slots=True)
class _Walk:
    """One pass over a graph; owns its spans and the limits it met.

    Attributes:
        spans: span of every value met so far.
        limits: where inputs reach a lookup or a length.
        hints: limits that hold only where nothing better is known.
        misfit: whether a lookup by position alone leaves its table.
    """

    spans: dict[ir.Value, Span] = field(default_factory=dict)
    limits: list[_Limit] = field(default_factory=list)
    hints: list[_Limit] = field(default_factory=list)
    misfit: bool = False

    def graph(self, graph: ir.Graph) -> None:
        for node in graph:
            inputs = [None if value is None else self._span(value) for value in node.inputs]
            self._note_limits(node, inputs)
            outputs = self._outputs(node, inputs)
            for value, span in zip(node.outputs, outputs, strict=False):
                self.spans[value] = span

    def _span(self, value: ir.Value) -> Span:
        span = self.spans.get(value)
        if span is None:
            span = UNKNOWN if value.const_value is None else _constant_span(value.const_value)
            self.spans[value] = span
        return span

    def _outputs(self, node: ir.Node, inputs: Sequence[Span | None]) -> tuple[Span, ...]:
        bodies = [
            attribute.as_graph()
            for attribute in node.attributes.values()
            if attribute.type is ir.AttributeType.GRAPH
        ]
        for body in bodies:
            self.graph(body)
        rule = RULES.get(node.op_type) if node.domain == "" else None
        if node.op_type == "Constant" and node.domain == "":
            return (_constant_node_span(node),)
        if rule is None:
            return ()
        try:
            result = rule(node, inputs)
        except (ValueError, IndexError, TypeError, KeyError, OverflowError):
            # The sizes tried do not suit this graph, or the graph is malformed: not our concern.
            return ()
        spans = result if isinstance(result, tuple) else (result,)
        return tuple(summary(span) if span.low.size > _READ_ELEMENTS else span for span in spans)

    def _note_limits(self, node: ir.Node, inputs: Sequence[Span | None]) -> None:
        if node.domain != "":
            return
        if node.op_type in ("Gather", "GatherElements"):
            table, ids = inputs[0], inputs[1]
            if table is not None and ids is not None and table.known and table.low.ndim:
                rows = table.low.shape[node.attributes.get_int("axis", 0)]
                self._limit(ids, 0, rows - 1)
        elif node.op_type in _COMPARISONS:
            for positions, lengths in (inputs[:2], inputs[1::-1]):
                if positions is not None and lengths is not None:
                    length = _counted(positions)
                    if length is not None and lengths.slots.any():
                        self._limit(lengths, 1, length)
        elif node.op_type in _RECURRENT and len(inputs) > 4:
            steps, lengths = inputs[0], inputs[4]
            if lengths is not None and steps is not None and steps.known:
                self._limit(lengths, 1, steps.low.shape[0])
            elif lengths is not None and lengths.bounded:
                self.hints.append(_Limit(lengths, 1, 1))

    def _limit(self, span: Span, low: float, high: float) -> None:
        if not span.bounded:
            return
        if span.slots.any():
            self.limits.append(_Limit(span, low, high))
        elif np.any(span.high > high):
            self.misfit = True


def _counted(positions: Span) -> int | None:
    """L where `positions` is 0..L-1 or 1..L along its last axis (a mask by length), else None."""
    if not positions.fixed or positions.low.ndim == 0 or positions.low.shape[-1] < 2:
        return None
    steps = positions.low.reshape(-1, positions.low.shape[-1])
    length = steps.shape[1]
    first = steps[:, :1]
    if (
        np.all(steps - first == np.arange(length))
        and first.min() == first.max()
        and first[0] in (0, 1)
    ):
        return length
    return None


def _constant_span(tensor: ir.TensorProtocol) -> Span:
    shape = tuple(tensor.shape.numpy())
    if tensor.dtype is ir.DataType.STRING:
        return opaque(shape)
    small = tensor.size <= 65_536
    if small or (tensor.dtype.is_integer() and tensor.size <= _READ_ELEMENTS):
        try:
            array = tensor.numpy()
        except (OSError, ValueError):  # external data that is not there: its shape is enough
            return opaque(shape)
        if small:
            return constant(array.astype(np.float64))
        return opaque(shape, float(array.min()), float(array.max()))
    return opaque(shape)


def _constant_node_span(node: ir.Node) -> Span:
    for name, attribute in node.attributes.items():
        if name == "value":
            return _constant_span(attribute.as_tensor())
        if name in ("value_int", "value_float", "value_ints", "value_floats"):
            return constant(np.array(attribute.value))
    return UNKNOWN
