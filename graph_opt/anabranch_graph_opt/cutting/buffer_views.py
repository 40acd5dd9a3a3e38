"""Joins neighbouring columns of a buffer instead of copying them together.

After the cut a graph slices a buffer into lookups, only to concatenate them again. A value whose
rows are a range of columns of one buffer is a view; a Concat of views that lie side by side is a
view as well, and is read from the buffer in one piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from anabranch_graph_opt.graph_constants import integers

__all__ = ["BufferViewsPass"]


@dataclass(frozen=True, slots=True)
class _View:
    """A value [rows, *shape] whose rows are columns `begin` to `end` of those of a buffer."""

    buffer: ir.Value
    begin: int
    end: int
    shape: tuple[int, ...]


class BufferViewsPass(ir.passes.InPlacePass):
    """Rewrites Concats of neighbouring columns.

    Requires that buffers are inputs [rows, columns] of the graph, columns fixed.

    Args:
        buffers: their names.
    """

    def __init__(self, buffers: Sequence[str]) -> None:
        super().__init__()
        self._buffers = tuple(buffers)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite in place; nodes that become unused stay."""
        graph = model.graph
        views: dict[ir.Value, _View] = {}
        for value in graph.inputs:
            if value.name in self._buffers and value.shape is not None:
                columns = int(str(value.shape[1]))
                views[value] = _View(value, 0, columns, (columns,))
        changed = False
        for node in list(graph):
            view = _view_of(node, views)
            if view is None:
                continue
            views[node.outputs[0]] = view
            if node.op_type == "Concat":
                _read_at_once(graph, node, view, views)
                changed = True
        return ir.passes.PassResult(model, changed)


def _view_of(node: ir.Node, views: dict[ir.Value, _View]) -> _View | None:
    """Return what the first output of a node is, if it is a view."""
    inputs = [views.get(value) if value is not None else None for value in node.inputs]
    if node.domain not in ("", "ai.onnx") or not inputs or inputs[0] is None:
        return None
    first = inputs[0]
    if node.op_type == "Concat":
        return _joined(node, inputs)
    if node.op_type == "Identity":
        return first
    if node.op_type == "Slice":
        return _sliced(node, first)
    if node.op_type == "Flatten":
        return _shaped(first, (prod(first.shape),)) if _attribute(node, "axis", 1) == 1 else None
    if node.op_type == "Reshape":
        return _reshaped(node, first)
    if node.op_type in ("Squeeze", "Unsqueeze"):
        return _squeezed(node, first)
    return None


def _joined(node: ir.Node, inputs: Sequence[_View | None]) -> _View | None:
    views = [view for view in inputs if view is not None]
    first = views[0]
    axis = _attribute(node, "axis", 0)
    axis = axis + len(first.shape) + 1 if axis < 0 else axis
    if len(views) != len(inputs) or axis < 1 or prod(first.shape[: axis - 1]) != 1:
        return None
    if any(len(view.shape) != len(first.shape) for view in views):
        return None
    end = first.begin
    for view in views:
        if view.buffer is not first.buffer or view.begin != end:
            return None
        end = view.end
    shape = list(first.shape)
    shape[axis - 1] = sum(view.shape[axis - 1] for view in views)
    return _View(first.buffer, first.begin, end, tuple(shape))


def _sliced(node: ir.Node, view: _View) -> _View | None:
    bounds = [_numbers(value) for value in node.inputs[1:]]
    if len(view.shape) != 1 or len(bounds) < 3 or any(each is None for each in bounds):
        return None
    starts, ends, axes, *steps = (each or () for each in bounds)
    if (
        len(starts) != 1
        or len(ends) != 1
        or axes not in ((1,), (-1,))
        or (steps and steps[0] != (1,))
    ):
        return None
    begin, end, _ = slice(starts[0], ends[0]).indices(view.shape[0])
    if begin >= end:
        return None
    return _View(view.buffer, view.begin + begin, view.begin + end, (end - begin,))


def _reshaped(node: ir.Node, view: _View) -> _View | None:
    shape = _numbers(node.inputs[1])
    if shape is None or not shape or _attribute(node, "allowzero", 0) != 0:
        return None
    rest = list(shape[1:])
    for index, size in enumerate(rest):
        if size == 0:
            if index >= len(view.shape):
                return None
            rest[index] = view.shape[index]
    total = prod(view.shape)
    if shape[0] == 0 and rest.count(-1) == 1:
        others = prod(size for size in rest if size != -1)
        if total % others:
            return None
        rest[rest.index(-1)] = total // others
    elif shape[0] not in (0, -1) or -1 in rest:
        return None
    return _shaped(view, tuple(rest))


def _squeezed(node: ir.Node, view: _View) -> _View | None:
    axes = _numbers(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None and "axes" in node.attributes:
        axes = tuple(node.attributes["axes"].as_ints())
    if axes is None:
        return None
    shape = list(view.shape)
    if node.op_type == "Unsqueeze":
        rank = len(shape) + 1 + len(axes)
        places = sorted(axis + rank if axis < 0 else axis for axis in axes)
        if places[0] == 0:
            return None
        for place in places:
            shape.insert(place - 1, 1)
        return _shaped(view, tuple(shape))
    places = sorted(axis + len(shape) + 1 if axis < 0 else axis for axis in axes)
    if places[0] == 0 or any(shape[place - 1] != 1 for place in places):
        return None
    return _shaped(view, tuple(s for i, s in enumerate(shape) if i + 1 not in places))


def _shaped(view: _View, shape: tuple[int, ...]) -> _View | None:
    if prod(shape) != view.end - view.begin:
        return None
    return _View(view.buffer, view.begin, view.end, shape)


def _read_at_once(
    graph: ir.Graph, node: ir.Node, view: _View, views: dict[ir.Value, _View]
) -> None:
    """Replace a Concat by the columns that it put together."""
    old = node.outputs[0]
    is_output = old.is_graph_output()
    value, new = view.buffer, []
    assert value.shape is not None
    if (view.begin, view.end) != (0, int(str(value.shape[1]))):
        bounds = ([view.begin], [view.end], [1])
        new.append(ir.node("Slice", [value, *(integers(graph, each) for each in bounds)]))
        value = new[-1].outputs[0]
        value.name = f"{old.name}_columns"
    if len(view.shape) != 1:
        new.append(ir.node("Reshape", [value, integers(graph, [0, *view.shape])]))
        value = new[-1].outputs[0]
        value.name = f"{old.name}_shaped"
    if is_output and not new:
        new.append(ir.node("Identity", [value]))
        value = new[-1].outputs[0]
        value.name = f"{old.name}_whole"
    graph.insert_before(node, new)
    views[value] = view
    ir.convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    if new:
        value.type, value.shape = old.type, old.shape
    if is_output:
        value.name = old.name


def _attribute(node: ir.Node, name: str, default: int) -> int:
    value = node.attributes.get_int(name, default)
    return default if value is None else value


def _numbers(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None or value.const_value is None or value.const_value.size > 64:
        return None
    return tuple(int(number) for number in value.const_value.numpy().reshape(-1))
