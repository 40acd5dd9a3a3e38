"""How many multiplications a graph takes: what can be saved of them is the bound of a gain.

Only operators that multiply matrices are counted; what the others cost is what keeps a gain below
its bound.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final

import onnx_ir as ir
from onnx_ir.passes import common as library

from anabranch_graph_opt.optimized import Optimized

__all__ = ["UserGain", "count_macs", "user_gain"]

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UserGain:
    """What running the user's part once can save.

    Attributes:
        whole: multiplications of a batch where all runs once per row.
        user: of the user's part, for one user.
        dense: of the rest, for the rows.
    """

    whole: int
    user: int
    dense: int

    @property
    def share(self) -> float:
        """Share of the multiplications that are saved."""
        return 1.0 - (self.user + self.dense) / self.whole if self.whole else 0.0

    @property
    def bound(self) -> float:
        """How many times faster it could be, if nothing but multiplications took time."""
        return 1.0 / max(1.0 - self.share, 1e-9)


def user_gain(by_row: Optimized, once: Optimized, rows: int) -> UserGain:
    """Return what a user side saves for a request of one user.

    Args:
        by_row: the model without a user side.
        once: the same one with it.
        rows: candidates of the request.
    """
    return UserGain(
        whole=count_macs(by_row.dense, rows),
        user=0 if once.user is None else count_macs(once.user, 1),
        dense=count_macs(once.dense, rows),
    )


def count_macs(model: ir.Model, rows: int) -> int:
    """Return the multiplications of Conv, Einsum, Gemm, GRU, LSTM, MatMul and RNN.

    Bodies of loops and branches are not counted: how often they run is not known.

    Args:
        model: is not changed.
        rows: size of every axis of an input that is not fixed.
    """
    sized = model.clone()
    for value in sized.graph.inputs:
        if value.shape is not None:
            value.shape = ir.Shape(
                [size if isinstance(size, int) else rows for size in value.shape]
            )
    for node in sized.graph:
        for value in node.outputs:
            value.shape = None
    library.ShapeInferencePass()(sized)
    return sum(_macs(node) for node in sized.graph)


def _macs(node: ir.Node) -> int:
    rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        return 0
    shapes = [_sizes(value) for value in node.inputs]
    return rule(node, shapes, _sizes(node.outputs[0]))


def _sizes(value: ir.Value | None) -> Sizes | None:
    """Return the shape of a value; None where it is not known."""
    if value is None or value.shape is None:
        return None
    sizes = tuple(size for size in value.shape if isinstance(size, int))
    return sizes if len(sizes) == len(value.shape) else None


def _matmul(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int:
    left = shapes[0]
    return 0 if not left or result is None else prod(result) * left[-1]


def _gemm(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int:
    left = shapes[0]
    if left is None or result is None:
        return 0
    return prod(result) * left[0 if node.attributes.get_int("transA", 0) else 1]


def _conv(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int:
    weight = shapes[1]
    return 0 if weight is None or result is None else prod(result) * prod(weight[1:])


def _recurrent(gates: int) -> Callable[[ir.Node, list[Sizes | None], Sizes | None], int]:
    def macs(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int:
        values, weight, again = shapes[:3]
        if values is None or weight is None or again is None:
            return 0
        steps, rows = (values[0], values[1]) if len(values) == 3 else (1, 1)
        directions, hidden = weight[0], again[2]
        return steps * rows * directions * gates * hidden * (weight[2] + hidden)

    return macs


def _einsum(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int:
    equation = node.attributes.get_string("equation", "") or ""
    sizes: dict[str, int] = {}
    terms = equation.replace(" ", "").split("->")[0].split(",")
    for letters, shape in zip(terms, shapes, strict=True):
        if shape is None or "." in letters or len(letters) != len(shape):
            return 0
        sizes.update(zip(letters, shape, strict=True))
    return prod(sizes.values()) if len(shapes) > 1 else 0


_RULES: Final[Mapping[str, Callable[[ir.Node, list[Sizes | None], Sizes | None], int]]] = (
    MappingProxyType(
        {
            "Conv": _conv,
            "Einsum": _einsum,
            "GRU": _recurrent(3),
            "Gemm": _gemm,
            "LSTM": _recurrent(4),
            "MatMul": _matmul,
            "RNN": _recurrent(1),
        }
    )
)
