"""Bringing graphs into normal form changes no number and no name that anybody knows."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.graph_order import check_order
from anabranch_graph_opt.passes.normalising import Normalised, normalise
from anabranch_graph_opt.passes.output_names import OutputNamesPass
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.optimized_models import WholeModel, parsed, same_answers
from anabranch_wire.errors import InvalidInput

TABLE = np.arange(24, dtype=np.float32).reshape(8, 3)


def normal(model: onnx.ModelProto) -> Normalised:
    return normalise(ir.from_proto(model))


def kinds(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def check_same(model: onnx.ModelProto, **inputs: Any) -> Normalised:
    """Check that the normal form has the names of the original and gives its numbers."""
    made = normal(model)
    graph = made.model.graph
    assert [value.name for value in graph.inputs] == [value.name for value in model.graph.input]
    assert [value.name for value in graph.outputs] == [value.name for value in model.graph.output]
    found = OrtModelRunner().run(graph_bytes(made.model), inputs)
    assert same_answers(found, WholeModel(model).run(inputs))
    return made


def test_shapes_of_rows_are_taken_from_ids() -> None:
    model = parsed(
        """g (int64[N, 4] ids) => (int64[3] s, int64[1] last, float[N, 4, 3] y)
        { r = Gather(t, ids) s = Shape(r) last = Shape <start: int = -1> (r) y = Relu(r) }""",
        t=TABLE,
    )

    made = check_same(model, ids=np.zeros((5, 4), np.int64))

    shapes = [node for node in made.model.graph if node.op_type == "Shape"]
    assert shapes
    assert {str(node.inputs[0].name) for node in shapes if node.inputs[0] is not None} == {"ids"}


def test_lookups_of_slices_leave_the_body_of_a_loop() -> None:
    model = parsed(
        """g (int64[M] ids, int64 n) => (float[K, 3] y)
        <bool yes = {1}, int64[1] one = {1}, int64[1] zero = {0}>
        {
          y = Loop <body = bag (int64 i, bool c) => (bool d, float[3] pooled) {
            d = Identity(c)
            begin = Unsqueeze(i, zero)
            end = Add(begin, one)
            some = Slice(ids, begin, end, zero)
            rows = Gather(t, some)
            pooled = ReduceSum <keepdims: int = 0> (rows, zero)
          }> (n, yes)
        }""",
        t=TABLE,
    )

    made = check_same(model, ids=np.array([3, -1, 5, 5]), n=np.array(3))

    assert "Gather" in kinds(made.model)
    (body,) = made.model.graph.subgraphs()
    assert "Gather" not in [node.op_type for node in body]


def test_a_lookup_of_ids_that_the_loop_makes_stays_in_it() -> None:
    model = parsed(
        """g (int64[M] ids, int64 n) => (float[K, 3] y)
        <bool yes = {1}>
        {
          y = Loop <body = bag (int64 i, bool c) => (bool d, float[3] row) {
            d = Identity(c)
            row = Gather(t, i)
          }> (n, yes)
        }""",
        t=TABLE,
    )

    made = check_same(model, ids=np.array([3]), n=np.array(3))

    assert "Gather" not in kinds(made.model)


def test_bodies_return_values_of_their_own() -> None:
    model = parsed(
        """g (float[N, 3] x, bool yes) => (float[N, 3] y)
        {
          z = Neg(x)
          y = If (yes) <
            then_branch = a () => (float[N, 3] p) { p = Identity(z) },
            else_branch = b () => (float[N, 3] q) { q = Relu(z) }
          >
        }""",
    )

    check_same(model, x=np.ones((2, 3), np.float32), yes=np.array(True))


@pytest.mark.parametrize(
    "graph",
    [
        "h = Relu(x) y = Identity(h)",
        "h = Relu(x) y = Relu(x)",
        "h = Identity(x) y = Identity(x)",
        "h = Identity(w) y = Identity(w)",
        "z = Relu(x) h = Identity(z) y = Identity(z)",
    ],
)
def test_outputs_that_are_one_value_keep_their_names(graph: str) -> None:
    model = parsed(f"g (float[2] x) => (float[2] h, float[2] y) {{ {graph} }}",
                   w=np.ones(2, np.float32))  # fmt: skip

    check_same(model, x=np.array([-1, 2], np.float32))


def test_output_names_are_left_where_they_are_right() -> None:
    model = ir.from_proto(parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }"))

    result = OutputNamesPass(["y"])(model)

    assert not result.modified


def test_shapes_and_columns_are_computed_but_no_weight_is() -> None:
    model = parsed(
        """g (float[N, 4] x) => (float[N, 2] y)
        <int64 one = {1}, int64 two = {2}, int64[1] axis = {1}>
        {
          three = Add(one, two)
          begin = Unsqueeze(one, zero)
          end = Unsqueeze(three, zero)
          part = Slice(x, begin, end, axis)
          v = Mul(w, w)
          y = Add(part, v)
        }""",
        w=np.array([3, 4], np.float32),
        zero=np.array([0], np.int64),
    )

    made = check_same(model, x=np.ones((2, 4), np.float32))

    assert kinds(made.model) == ["Slice", "Mul", "Add"]
    assert made.weights == {"w"}


def test_every_weight_that_is_used_keeps_its_name() -> None:
    model = parsed(
        """g (float[N, 2] x, bool yes) => (float[N, 2] y)
        {
          i = Identity(a)
          p = MatMul(x, i)
          t = Transpose(a)
          q = MatMul(p, t)
          y = If (yes) <
            then_branch = one () => (float[N, 2] r) { r = Add(q, b) },
            else_branch = two () => (float[N, 2] s) { s = Sub(q, b) }
          >
        }""",
        a=np.array([[1, 2], [3, 4]], np.float32),
        b=np.array([5, 6], np.float32),
        unused=np.array([5, 6], np.float32),
    )

    made = check_same(model, x=np.ones((2, 2), np.float32), yes=np.array(False))

    assert made.weights == {"a", "b", "unused"}
    assert {"a", "b"} <= set(made.model.graph.initializers)


def test_constants_that_ask_for_much_are_not_computed() -> None:
    model = parsed(
        """g (float[N] x) => (int64[M] y, int64[K] z)
        <int64 from = {0}, int64 to = {90000000}, int64 step = {1}>
        { y = Expand(from, far) z = Range(from, to, step) }""",
        far=np.array([2**40], np.int64),
    )

    assert kinds(normal(model).model) == ["Expand", "Range"]


@pytest.mark.parametrize("body", ["y = Range(from, to, step)", "y = ConstantOfShape(far)"])
def test_constants_that_no_memory_holds_are_refused(body: str) -> None:
    model = parsed(
        f"""g (float[N] x) => (float[M] y)
        <int64 from = {{0}}, int64 to = {{9000000000000000}}, int64 step = {{1}}> {{ {body} }}""",
        far=np.array([2**40], np.int64),
    )

    with pytest.raises(InvalidInput, match="asks for more numbers than memory holds"):
        normal(model)


def test_a_cycle_is_refused() -> None:
    model = parsed("g (float[2] x) => (float[2] y) { a = Add(x, b) b = Relu(a) y = Relu(b) }")

    with pytest.raises(InvalidInput, match="uses 'b' before it is computed: the graph has a cycle"):
        normal(model)


def test_order_is_looked_at_inside_of_bodies() -> None:
    model = parsed(
        """g (float[2] x, bool yes) => (float[2] y)
        { y = If (yes) <
            then_branch = a () => (float[2] p) { p = Neg(q) q = Relu(x) },
            else_branch = b () => (float[2] r) { r = Relu(x) }
          > }"""
    )

    with pytest.raises(InvalidInput, match="before it is computed"):
        check_order(ir.from_proto(model).graph)


def test_the_given_model_is_not_changed() -> None:
    model = ir.from_proto(
        parsed("g (float[2] x) => (float[2] y) { a = Identity(x) y = Identity(a) }")
    )
    before = ir.to_proto(model).SerializeToString()

    normalise(model)

    assert ir.to_proto(model).SerializeToString() == before
