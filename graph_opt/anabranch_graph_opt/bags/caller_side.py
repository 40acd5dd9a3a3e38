"""What is made of a caller's inputs by arithmetic of ids and masks: no table, no layer."""

from collections.abc import Set
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.placement.operators import ID_OPERATORS
from anabranch_graph_opt.row_axes import AxisKind, RowAxes

__all__ = ["CallerSide"]

_MAX_CONSTANT: Final = 65536
_EMPTY: Final = frozenset({"SequenceEmpty"})
"""What a loop begins with that collects the results of bags."""
_SHAPE_OPERATORS: Final = frozenset({"Shape", "Size"})


class CallerSide:
    """Says of values of one graph whether a prelude could compute them.

    Args:
        graph: in normal form.
        axes: what axis 0 of its inputs counts.
        weights: names of initializers that may be updated later; what is made of them is not the
            caller's.
        kinds: of inputs that are the caller's here.
    """

    def __init__(
        self,
        graph: ir.Graph,
        axes: RowAxes,
        weights: Set[str],
        kinds: Set[AxisKind] = frozenset({"rows", "none"}),
    ) -> None:
        self._graph = graph
        self._inputs = {
            value for value in graph.inputs if axes.kinds[str(value.name)].kind in kinds
        }
        self._weights = weights
        self._known: dict[ir.Value, bool] = {}

    def has(self, value: ir.Value) -> bool:
        """Whether a value is made of inputs and constants by such arithmetic."""
        pending = [value]
        while pending:
            last = pending[-1]
            if last in self._known:
                pending.pop()
                continue
            node = last.producer()
            if node is None:
                self._known[last] = self._enters(last)
                continue
            if not self._is_followed(node):
                self._known[last] = False
                continue
            below = [each for each in node.inputs if each is not None]
            unknown = [each for each in below if each not in self._known]
            if unknown:
                pending += unknown
                continue
            self._known[last] = all(self._known[each] for each in below)
        return self._known[value]

    def varies(self, value: ir.Value) -> bool:
        """Whether what an input holds reaches a value; else only sizes and constants do."""
        return bool(self.roots(value))

    def roots(self, value: ir.Value) -> frozenset[str]:
        """Return the inputs of which not only the size reaches a value."""
        roots: set[str] = set()
        pending, seen = [value], {value}
        while pending:
            last = pending.pop()
            node = last.producer()
            if node is None:
                if last.const_value is None:
                    roots.add(str(last.name))
                continue
            if node.op_type in _SHAPE_OPERATORS:
                continue
            below = [each for each in node.inputs if each is not None and each not in seen]
            seen.update(below)
            pending += below
        return frozenset(roots)

    def _enters(self, value: ir.Value) -> bool:
        constant = value.const_value
        if constant is None:
            return value in self._inputs
        return constant.size <= _MAX_CONSTANT and value.name not in self._weights

    def _is_followed(self, node: ir.Node) -> bool:
        return (
            node.graph is self._graph
            and node.domain in ("", "ai.onnx")
            and (node.op_type in ID_OPERATORS or node.op_type in _EMPTY)
            and not any(
                attribute.type is ir.AttributeType.GRAPH for attribute in node.attributes.values()
            )
        )
