"""Interval arithmetic over a graph's id chains: between which numbers may every element lie.

A `Span` follows a value from the graph inputs to a table lookup, element by element, together with
the *slots* (input columns) that the element was computed from. Everything here is a guess made for
generating inputs: an operator without a rule yields `UNKNOWN`, never an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = [
    "UNKNOWN",
    "Floats",
    "Span",
    "SpanRule",
    "axes_of",
    "combine",
    "constant",
    "moved",
    "need",
    "opaque",
    "summary",
]

Floats = NDArray[np.float64]
Slots = NDArray[np.object_]

_MAX_ELEMENTS: Final = 65_536
"""Larger values are followed as one summary element."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bounds of the elements of one value.

    Attributes:
        low, high: smallest and largest number an element may be, float64 in the value's shape; of
            no axis where `known` is false: then one bound holds for all elements.
        slots: per element, a bit for every input column it depends on (Python ints).
        known: whether the arrays have the value's real shape.
    """

    low: Floats
    high: Floats
    slots: Slots
    known: bool

    @property
    def fixed(self) -> bool:
        """Whether every element is one known number."""
        if not self.known or _distinct(self.slots).any():
            return False
        low, high = _distinct(self.low), _distinct(self.high)
        return bool(np.all(low == high))

    @property
    def bounded(self) -> bool:
        """Whether every element has finite bounds."""
        low, high = _distinct(self.low), _distinct(self.high)
        return bool(np.all(np.isfinite(low)) and np.all(np.isfinite(high)))

    def numbers(self) -> tuple[int, ...] | None:
        """The elements as integers, flattened, or None where they are not all known."""
        if not self.fixed or not self.bounded:
            return None
        return tuple(int(x) for x in self.low.reshape(-1))


SpanRule = Callable[[ir.Node, Sequence[Span | None]], Span | tuple[Span, ...]]
"""(node, spans of its inputs) -> span of its output, or of each. May raise where shapes clash."""


_Any = TypeVar("_Any", bound=np.generic)


def _distinct(array: NDArray[_Any]) -> NDArray[_Any]:
    """The elements that an array has in memory: a table of a billion equal ones has one."""
    every, first = slice(None), slice(0, 1)
    return array[(*[every if step else first for step in array.strides], ...)]


def _bits(shape: tuple[int, ...], bits: int) -> Slots:
    return np.broadcast_to(np.array(bits, dtype=object), shape)


UNKNOWN: Final = Span(np.array(-np.inf), np.array(np.inf), _bits((), 0), known=False)
"""Nothing is known, not even the shape."""


def constant(array: NDArray[np.generic]) -> Span:
    """Span of a numeric or bool constant; summarised where it is large."""
    values = np.asarray(array).astype(np.float64)
    span = Span(values, values, _bits(values.shape, 0), known=True)
    return span if values.size <= _MAX_ELEMENTS else summary(span)


def opaque(shape: tuple[int, ...], low: float = -np.inf, high: float = np.inf) -> Span:
    """Span of a value whose shape is known and whose elements are all in [low, high]."""
    return Span(
        np.broadcast_to(np.float64(low), shape),
        np.broadcast_to(np.float64(high), shape),
        _bits(shape, 0),
        known=True,
    )


def summary(span: Span) -> Span:
    """One element that stands for all of `span`, shape forgotten."""
    if span.low.size == 0:
        return UNKNOWN
    bits = 0
    for element in set(_distinct(span.slots).reshape(-1).tolist()):
        bits |= element
    low, high = _distinct(span.low).min(), _distinct(span.high).max()
    return Span(np.asarray(low), np.asarray(high), _bits((), bits), known=False)


def moved(span: Span, move: Callable[[NDArray[np.generic]], NDArray[np.generic]]) -> Span:
    """Apply an operation that only moves or repeats elements; unknown shapes stay unknown."""
    if not span.known:
        return span
    low, high, slots = (np.asarray(move(part)) for part in (span.low, span.high, span.slots))
    return Span(
        low.astype(np.float64, copy=False),
        high.astype(np.float64, copy=False),
        slots.astype(object, copy=False),
        known=True,
    )


def combine(
    rule: Callable[[Floats, Floats, Floats, Floats], tuple[Floats, Floats]], left: Span, right: Span
) -> Span:
    """Elementwise combination of two spans under broadcasting; `rule` maps bounds to bounds."""
    with np.errstate(all="ignore"):
        low, high = rule(left.low, left.high, right.low, right.high)
    slots = np.bitwise_or(left.slots, right.slots)
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return Span(low, high, np.asarray(slots, dtype=object), left.known and right.known)


def axes_of(node: ir.Node, spans: Sequence[Span | None], index: int) -> tuple[int, ...] | None:
    """Axes of a node, from input `index` or the attribute of older operator sets."""
    if len(spans) > index and (span := spans[index]) is not None:
        return span.numbers()
    attribute = node.attributes.get("axes")
    return None if attribute is None else tuple(attribute.as_ints())


def need(span: Span | None) -> Span:
    """The span, or `UNKNOWN` for an input left out."""
    return UNKNOWN if span is None else span
