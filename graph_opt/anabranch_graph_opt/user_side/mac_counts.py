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

__all__ = ["UserGain", "count_macs", "user_gain"]

Sizes = tuple[int, ...]
Rule = Callable[[ir.Node, list[Sizes | None], Sizes | None], int | None]


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


def user_gain(
    whole: ir.Model, user: ir.Model | None, dense: ir.Model, rows: int
) -> UserGain | None:
    """Return what a user side saves for a request of one user; None where that cannot be counted.

    Args:
        whole: the graph in which all runs once per row.
        user: what runs once per user; None where nothing does.
        dense: what is left.
        rows: candidates of the request.
    """
    counts = (count_macs(whole, rows), 0 if user is None else count_macs(user, 1))
    left = count_macs(dense, rows)
    if counts[0] is None or counts[1] is None or left is None:
        return None
    return UserGain(counts[0], counts[1], left)


def count_macs(model: ir.Model, rows: int) -> int | None:
    """Return the multiplications of Conv, Einsum, Gemm, GRU, LSTM, MatMul and RNN.

    None where sizes of one of them are not known.

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
    library.ShapeInferencePass(check_type=False, strict_mode=False)(sized)
    counts = [_macs(node) for node in sized.graph]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _macs(node: ir.Node) -> int | None:
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


def _matmul(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int | None:
    left = shapes[0]
    return None if not left or result is None else prod(result) * left[-1]


def _gemm(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int | None:
    left = shapes[0]
    if left is None or result is None:
        return None
    return prod(result) * left[0 if node.attributes.get_int("transA", 0) else 1]


def _conv(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int | None:
    weight = shapes[1]
    return None if weight is None or result is None else prod(result) * prod(weight[1:])


def _recurrent(gates: int) -> Rule:
    def macs(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int | None:
        weight, again = shapes[1:3]
        # How many numbers a step has is known by the weight.
        values = node.inputs[0]
        outer = None if values is None or values.shape is None else list(values.shape)[:2]
        if weight is None or again is None or outer is None:
            return None
        steps = [size for size in outer if isinstance(size, int)]
        if len(steps) < 2:
            return None
        directions, hidden = weight[0], again[2]
        return prod(steps) * directions * gates * hidden * (weight[2] + hidden)

    return macs


def _einsum(node: ir.Node, shapes: list[Sizes | None], result: Sizes | None) -> int | None:
    equation = node.attributes.get_string("equation", "") or ""
    sizes: dict[str, int] = {}
    terms = equation.replace(" ", "").split("->")[0].split(",")
    for letters, shape in zip(terms, shapes, strict=True):
        if shape is None or "." in letters or len(letters) != len(shape):
            return None
        sizes.update(zip(letters, shape, strict=True))
    return prod(sizes.values()) if len(shapes) > 1 else 0


_RULES: Final[Mapping[str, Rule]] = MappingProxyType(
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
