"""Random products of user and candidate columns: taken apart, they are what they were."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from anabranch_graph_opt.passes.normalising import normalise
from anabranch_graph_opt.user_side.product_splitting import ProductSplittingPass
from anabranch_graph_opt.user_side.splitting import UserSplit, split_users
from anabranch_testing.users_once import run_parts, run_whole

COUNTS = (2, 1, 3)
INDEX = np.repeat(np.arange(len(COUNTS)), COUNTS)


@dataclass
class Draft:
    """A graph under construction.

    Attributes:
        draw: of Hypothesis.
        length: of a sequence, for values [N, length, columns]; 0 where they are [N, columns].
    """

    draw: Any
    length: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int) -> str:
        rng = np.random.default_rng(len(self.weights))
        return self.constant(rng.normal(size=shape).astype(np.float32))

    def input(self, side: str, *sizes: int) -> str:
        name = f"{side}{len(self.inputs)}"
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *sizes])
        self.inputs.append(info)
        return name

    def leaf(self, width: int) -> str:
        """A value [N, width], or [N, length, width], of one side or of both."""
        side = "ui"[self.number(0, 1)]
        kind = self.number(0, 4)
        if not self.length:
            if kind == 0:  # fields one behind the other
                stacked = (
                    self.input(side, 2, width) if width % 2 else self.input(side, 2, width // 2)
                )
                if not width % 2:
                    return self.op("Flatten", stacked)
            if kind == 1:
                return self.op("Mul", self.input("u", width), self.input("i", width))
            return self.input(side, width)
        full = self.input(side, self.length, width)
        if kind == 0:
            return full
        short = self.op("Unsqueeze", self.input("ui"[self.number(0, 1)], width), self.constant([1]))
        wide = self.op("Expand", short, self.constant(np.array([1, self.length, 1])))
        if kind == 1:
            return wide
        pair = [full, wide] if self.number(0, 1) else [wide, full]
        return self.op(("Sub", "Mul", "Add")[kind - 2], *pair)

    def columns(self, depth: int) -> tuple[str, int]:
        """A value put together from others, and its columns."""
        if depth == 0 or self.number(0, 2) == 0:
            width = self.number(1, 24)
            return self.leaf(width), width
        parts = [self.columns(depth - 1) for _ in range(self.number(2, 4))]
        if self.number(0, 3) == 0 and depth == 1:
            parts.append(parts[0])
        joined = self.op("Concat", *(name for name, _ in parts), axis=2 if self.length else 1)
        return joined, sum(width for _, width in parts)

    def product(self) -> str:
        value, width = self.columns(2)
        outputs = self.number(1, 6)
        if self.number(0, 1):
            result = self.op("MatMul", value, self.weight(width, outputs))
            return self.op("Add", result, self.weight(outputs)) if self.number(0, 1) else result
        if self.length:
            value = self.op("Reshape", value, self.constant(np.array([-1, width])))
        is_transposed = self.number(0, 1)
        weight = self.weight(*((outputs, width) if is_transposed else (width, outputs)))
        bias = [self.weight(outputs)] if self.number(0, 1) else []
        result = self.op("Gemm", value, weight, *bias, transB=is_transposed)
        if self.length:
            back = self.constant(np.array([-1, self.length, outputs]))
            result = self.op("Reshape", result, back)
        return result


@st.composite
def graphs(draw: Any) -> onnx.ModelProto:
    draft = Draft(draw, length=draw(st.sampled_from([0, 0, 3])))
    hidden = draft.op("Tanh", draft.product())
    draft.op("Identity", hidden)
    rank = 3 if draft.length else 2
    output = helper.make_tensor_value_info(
        draft.nodes[-1].output[0], TensorProto.FLOAT, [None] * rank
    )
    made = helper.make_graph(draft.nodes, "random", draft.inputs, [output], draft.weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@settings(max_examples=150)
@given(graphs())
def test_a_product_taken_apart_is_what_it_was(source: onnx.ModelProto) -> None:
    users = frozenset(value.name for value in source.graph.input if value.name.startswith("u"))
    rng = np.random.default_rng(1)
    by_user: dict[str, NDArray[Any]] = {}
    by_row: dict[str, NDArray[Any]] = {}
    for value in source.graph.input:
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim][1:]
        side, rows = (by_user, len(COUNTS)) if value.name in users else (by_row, len(INDEX))
        side[value.name] = rng.normal(size=(rows, *sizes)).astype(np.float32)
    whole = {**{name: array[INDEX] for name, array in by_user.items()}, **by_row}
    name = source.graph.output[0].name
    expected = run_whole(source.SerializeToString(), whole)[name]
    model = normalise(ir.from_proto(source)).model

    ProductSplittingPass(users)(model)

    apart = run_whole(ir.to_proto(model).SerializeToString(), whole)[name]
    np.testing.assert_allclose(apart, expected, rtol=0, atol=2e-5)
    if not users or not by_row:
        return
    found = split_users(model, users, frozenset())
    if isinstance(found, UserSplit):
        once = run_parts(found.user, found.dense, by_user, by_row, INDEX)[name]
        np.testing.assert_allclose(once, expected, rtol=0, atol=2e-5)
