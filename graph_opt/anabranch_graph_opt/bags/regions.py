"""What becomes of the rows of a lookup: values through which all of them have to pass.

From the rows on, a region grows by the nodes that read it, as long as whatever else those read is
the caller's. Where only one value of the region is still to be read by the rest of the graph, the
region is a function of rows and caller alone, and that value is its result.
"""

import heapq
from collections.abc import Mapping
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.bags.bodies import Owners, outermost, read_from
from anabranch_graph_opt.bags.caller_side import CallerSide

__all__ = ["Regions"]

_MAX_NODES: Final = 24
"""Pooling takes few nodes; what goes on for longer is something else."""


class Regions:
    """Finds what becomes of rows, in one graph.

    Args:
        graph: in normal form.
        owners: of its bodies.
        caller: what is the caller's in it.
    """

    def __init__(self, graph: ir.Graph, owners: Owners, caller: CallerSide) -> None:
        self._graph = graph
        self._owners = owners
        self._caller = caller
        self._numbers: Mapping[ir.Node, int] = {node: i for i, node in enumerate(graph)}

    def results(self, rows: ir.Value) -> tuple[ir.Value, ...]:
        """Return the values that all of `rows` pass through, in the order of the graph."""
        inside = {rows}
        visited: set[ir.Node] = set()
        pending = [(self._numbers[node], node) for node in self._readers(rows)]
        heapq.heapify(pending)
        queued = {node for _, node in pending}
        found: list[ir.Value] = []
        while pending and len(visited) < _MAX_NODES:
            _, node = heapq.heappop(pending)
            others = [each for each in read_from(node, self._graph) if each not in inside]
            if not all(self._caller.has(each) for each in others):
                break
            visited.add(node)
            for output in node.outputs:
                inside.add(output)
                for reader in self._readers(output) - queued:
                    queued.add(reader)
                    heapq.heappush(pending, (self._numbers[reader], reader))
            unread = [each for each in inside if self._is_open(each, visited)]
            if len(unread) == 1:
                found.append(unread[0])
        return tuple(found)

    def _readers(self, value: ir.Value) -> set[ir.Node]:
        return {outermost(node, self._owners) for node, _ in value.uses()}

    def _is_open(self, value: ir.Value, visited: set[ir.Node]) -> bool:
        return value.is_graph_output() or not self._readers(value) <= visited
