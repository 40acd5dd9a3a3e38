"""Following single ids from the inputs of a graph to a lookup, by moving labels instead of numbers.

Every element of every input gets a number of its own, and the operators that only move elements
about (slices, columns, transpositions, concatenations, ...) are run on those numbers, for two
batches of different size. What comes out says for each id which element of which row it is. Sizes
and columns that the graph computes on the way are computed. An operator that makes new numbers ends
the way, with two exceptions that a lookup can do itself: a cast to integers, and a constant added.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference.ops import load_op

from anabranch_graph_opt.placement.operators import COMPUTABLE, MOVING
from anabranch_graph_opt.result_sizes import result_size
from anabranch_graph_opt.row_axes import RowAxes

__all__ = ["Element", "IdElements", "Known", "Labels"]

_MAX_ELEMENTS: Final = 2**20
"""Of a tensor that is followed: larger ones are no ids of a request."""
_MAX_MOVED: Final = 2**24
"""Elements of all tensors together that are followed in one batch."""
_ID_TYPES: Final = frozenset(
    {ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE}
)
"""What a lookup reads ids from; of others a prelude makes integers."""

_FAILURES: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RuntimeError,
)
"""What operators of the reference raise on a malformed node."""

Array = NDArray[Any]


class Element(NamedTuple):
    """One id: an element of a row of an input.

    Attributes:
        source: name of the input.
        row: of the batch; -1 where the input is the same for all rows.
        column: of the element in its row, in row-major order.
        truncated: whether it was a float that was cast.
        add: constant that was added to it.
    """

    source: str
    row: int
    column: int
    truncated: bool = False
    add: int = 0


class Known(NamedTuple):
    """A tensor whose numbers do not depend on what a request holds."""

    array: Array


class Labels(NamedTuple):
    """A tensor of elements.

    Attributes:
        array: int64, the label of each element.
        is_float: whether the elements are floats still.
    """

    array: Array
    is_float: bool


_State = Known | Labels | None
"""None: not followed."""


class IdElements:
    """Elements in the tensors of one model, for batches of one size. Used by one thread.

    Args:
        model: in normal form.
        axes: what axis 0 of its inputs counts.
        rows: of the batch.
    """

    def __init__(self, model: ir.Model, axes: RowAxes, rows: int) -> None:
        self._graph = model.graph
        self._inputs = frozenset(model.graph.inputs)
        self._operators: dict[str, Any] = {}
        self._moved = 0
        self._opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 1))
        self._axes = axes
        self._rows = rows
        self._row_symbols = {
            axis.value
            for value in model.graph.inputs
            if value.shape and axes.kinds[str(value.name)].kind == "rows"
            for axis in value.shape[:1]
            if isinstance(axis, ir.SymbolicDim)
        } - {None}
        self._elements: list[Element] = []
        self._labels: dict[Element, int] = {}
        self._states: dict[ir.Value, _State] = {}

    def element(self, label: int) -> Element:
        """Return what a label stands for."""
        return self._elements[label]

    def of(self, value: ir.Value, *, is_float: bool = False) -> Labels | None:
        """Return the labels of a tensor of integers, or of floats; None where there are none."""
        state = self._follow(value)
        return state if isinstance(state, Labels) and state.is_float == is_float else None

    def _follow(self, value: ir.Value) -> _State:
        """Compute the states of a value and all it depends on, without recursion."""
        pending = [value]
        while pending:
            last = pending[-1]
            if last in self._states:
                pending.pop()
                continue
            node = last.producer()
            if node is None or node.graph is not self._graph:
                self._states[last] = self._entering(last)
                continue
            if not _is_followed(node):
                self._leave(node, (None,) * len(node.outputs))
                continue
            below = [each for each in node.inputs if each is not None and each not in self._states]
            if below:
                pending += below
                continue
            after = self._after(node)
            fits = len(after) == len(node.outputs) and self._moved <= _MAX_MOVED
            self._leave(node, after if fits else (None,) * len(node.outputs))
        return self._states[value]

    def _leave(self, node: ir.Node, states: Sequence[_State]) -> None:
        for value, state in zip(node.outputs, states, strict=True):
            self._states[value] = state

    def _entering(self, value: ir.Value) -> _State:
        if value.const_value is not None:
            return self._constant(value.const_value)
        if value not in self._inputs or value.dtype is None or value.shape is None:
            return None
        if value.dtype not in _ID_TYPES:
            return None
        kind = self._axes.kinds[str(value.name)].kind
        shape = self._shape(value.shape, has_rows=kind == "rows")
        if kind not in ("rows", "none") or shape is None or prod(shape) > _MAX_ELEMENTS:
            return None
        return Labels(
            self._numbered(str(value.name), shape, has_rows=kind == "rows"),
            value.dtype.is_floating_point(),
        )

    def _constant(self, tensor: ir.TensorProtocol) -> _State:
        if tensor.size > _MAX_ELEMENTS or tensor.dtype.is_string():
            return None
        try:
            return Known(tensor.numpy())
        except (OSError, *_FAILURES):  # numbers that are not there
            return None

    def _shape(self, declared: ir.Shape, *, has_rows: bool) -> tuple[int, ...] | None:
        """Return the shape of an input; None where an axis varies with something but the rows."""
        shape: list[int] = []
        for index, axis in enumerate(declared):
            if index == 0 and has_rows:
                shape.append(self._rows)
            elif isinstance(axis, int) and axis >= 0:
                shape.append(axis)
            elif isinstance(axis, ir.SymbolicDim) and axis.value in self._row_symbols:
                shape.append(self._rows)
            else:
                return None
        return tuple(shape)

    def _numbered(self, source: str, shape: tuple[int, ...], *, has_rows: bool) -> Array:
        rows = self._rows if has_rows else 1
        columns = prod(shape) // max(rows, 1)
        labels = [
            self._label(Element(source, row if has_rows else -1, column))
            for row in range(rows)
            for column in range(columns)
        ]
        return np.array(labels, np.int64).reshape(shape)

    def _label(self, element: Element) -> int:
        label = self._labels.get(element)
        if label is None:
            label = self._labels[element] = len(self._elements)
            self._elements.append(element)
        return label

    def _after(self, node: ir.Node) -> Sequence[_State]:
        """Return the states of the outputs of a node from those of its inputs."""
        nothing: Sequence[_State] = (None,) * len(node.outputs)
        states = [None if value is None else self._states[value] for value in node.inputs]
        if any(
            value is not None and state is None
            for value, state in zip(node.inputs, states, strict=True)
        ):
            return nothing
        labelled = [state for state in states if isinstance(state, Labels)]
        try:
            if node.op_type == "Shape" and states[0] is not None:
                return self._run(node, [Known(states[0].array)], None)
            if not labelled:
                return self._run(node, states, None)
            if node.op_type == "Cast":
                return (self._cast(node, labelled[0]),)
            if node.op_type in ("Add", "Sub"):
                return (self._shifted(node.op_type, states),)
            if node.op_type in MOVING and _moves_only(node, states):
                return self._run(node, states, labelled[0].is_float)
        except _FAILURES:
            return nothing
        return nothing

    def _run(
        self, node: ir.Node, states: Sequence[_State], is_float: bool | None
    ) -> Sequence[_State]:
        """Run a node; `is_float` is that of the elements which it moves, None where it has none."""
        arrays = [None if state is None else state.array for state in states]
        attributes = {
            name: attribute.value.numpy()
            if attribute.type is ir.AttributeType.TENSOR
            else attribute.value
            for name, attribute in node.attributes.items()
        }
        count = len(node.outputs)
        if result_size(node.op_type, arrays, attributes) > _MAX_ELEMENTS:
            return (None,) * count
        operator = self._operators.get(node.op_type)
        if operator is None:
            operator = load_op("", node.op_type, self._opset)
            self._operators[node.op_type] = operator
        with np.errstate(all="ignore"):
            outputs = operator.eval(*arrays, n_outputs=count, **attributes)
        results = outputs if isinstance(outputs, tuple | list) else (outputs,)
        size = sum(np.size(result) for result in results)
        self._moved += size
        if len(results) != count or size > _MAX_ELEMENTS:
            return (None,) * count
        return [
            Known(np.asarray(result))
            if is_float is None
            else Labels(np.asarray(result, np.int64), is_float)
            for result in results
        ]

    def _cast(self, node: ir.Node, state: Labels) -> _State:
        """Follow casts that keep every id that a table can have."""
        source = node.inputs[0].dtype if node.inputs[0] is not None else None
        target = ir.DataType(node.attributes.get_int("to", 0))
        if state.is_float:
            if target.is_floating_point():
                # A wider float holds the same numbers; a narrower one may not.
                wider = source is not None and target.itemsize >= source.itemsize
                return state if wider and target is not ir.DataType.BFLOAT16 else None
            if target not in (ir.DataType.INT64, ir.DataType.INT32):
                return None
            return self._changed(state, lambda element: element._replace(truncated=True))
        if target is ir.DataType.INT64 or (source is not None and source is target):
            return state
        narrow = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
        if target is ir.DataType.INT32 and source in narrow:
            return state
        return None

    def _shifted(self, operator: str, states: Sequence[_State]) -> _State:
        """Follow elements to which known integers are added."""
        first, second = states
        if isinstance(first, Labels) and isinstance(second, Known):
            state, shift = first, second.array
            shift = -shift if operator == "Sub" else shift
        elif isinstance(second, Labels) and isinstance(first, Known) and operator == "Add":
            state, shift = second, first.array
        else:
            return None
        if state.is_float or shift.dtype not in (np.int64, np.int32):
            return None
        size = result_size("Add", [state.array, shift], {})
        self._moved += size
        if size > _MAX_ELEMENTS:
            return None
        labels, shifts = np.broadcast_arrays(state.array, shift)
        moved = [
            self._label(element._replace(add=element.add + int(by)))
            for label, by in zip(labels.reshape(-1).tolist(), shifts.reshape(-1), strict=True)
            for element in (self._elements[label],)
        ]
        return Labels(np.array(moved, np.int64).reshape(labels.shape), is_float=False)

    def _changed(self, state: Labels, change: Callable[[Element], Element]) -> Labels:
        flat = [self._label(change(self._elements[label])) for label in state.array.reshape(-1)]
        return Labels(np.array(flat, np.int64).reshape(state.array.shape), is_float=False)


def _is_followed(node: ir.Node) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in COMPUTABLE


def _moves_only(node: ir.Node, states: Sequence[_State]) -> bool:
    """Whether what is moved is all labels, and where it is moved to is known."""
    if node.op_type == "Concat":
        kinds = {(type(state), getattr(state, "is_float", None)) for state in states}
        return len(kinds) == 1
    return isinstance(states[0], Labels) and not any(
        isinstance(state, Labels) for state in states[1:]
    )
