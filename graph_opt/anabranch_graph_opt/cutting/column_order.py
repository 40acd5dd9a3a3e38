"""Orders lookups so that what the graph concatenates lies side by side in the buffer already."""

from collections.abc import Mapping, Sequence
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.cutting.requests import CutRequest

__all__ = ["in_column_order"]

_LAYOUT: Final = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def in_column_order(graph: ir.Graph, requests: Sequence[CutRequest]) -> tuple[CutRequest, ...]:
    """Return the lookups in the order in which their rows should lie.

    Each is put where the largest Concat that takes it wants it; the others follow in the order of
    the graph.
    """
    numbers = {node: index for index, node in enumerate(graph)}
    places = {request: _places(request.output, numbers) for request in requests}
    sizes: dict[int, int] = {}
    for request in requests:
        for concat, _ in places[request]:
            sizes[concat] = sizes.get(concat, 0) + 1
    keys = {request: _key(places[request], sizes) for request in requests}
    return tuple(sorted(requests, key=lambda request: keys[request]))


def _key(places: Sequence[tuple[int, int]], sizes: Mapping[int, int]) -> tuple[int, int, int, int]:
    if not places:
        return (1, 0, 0, 0)
    concat, position = max(places, key=lambda place: (sizes[place[0]], -place[0]))
    return (0, -sizes[concat], concat, position)


def _places(output: ir.Value, numbers: Mapping[ir.Node, int]) -> list[tuple[int, int]]:
    """Return the Concats that a value reaches by changes of layout alone, and its place in each."""
    found: list[tuple[int, int]] = []
    pending = [output]
    while pending:
        value = pending.pop()
        for node, index in value.uses():
            if node not in numbers:
                continue
            if node.op_type == "Concat":
                found.append((numbers[node], index))
            elif node.op_type in _LAYOUT and index == 0:
                pending.append(node.outputs[0])
    return found
