"""The structure hash: equal for what compiled artefacts can be reused for, and for nothing else."""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.passes.normalising import normalise
from anabranch_graph_opt.row_axes import InputAxis
from anabranch_graph_opt.structure_hashes import structure_hash
from anabranch_testing.optimized_models import parsed

GRAPH = """g (int64[N] id, float[N, 2] x) => (float[N, 3] y)
<int64[1] begin = {0}, int64[1] end = {1}, int64[1] axis = {1}>
{
  row_1 = Gather(table, id)
  part_2 = Slice(x, begin, end, axis)
  all_3 = Concat <axis: int = 1> (row_1, part_2)
  act_4 = LeakyRelu <alpha: float = 0.1> (all_3)
  y = MatMul(act_4, w)
}"""
BRANCHES = """g (float[N, 2] x, bool yes) => (float[N, 2] y)
{ y = If (yes) <
    then_branch = a () => (float[N, 2] p_1) { p_1 = Relu(x) },
    else_branch = b () => (float[N, 2] q_2) { q_2 = Neg(x) }
  > }"""


def weights(seed: int = 0, rows: int = 5, dtype: type = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"table": (rows, 3), "w": (4, 3)}
    return {name: rng.random(shape).astype(dtype) for name, shape in shapes.items()}


def digest(text: str = GRAPH, *, opset: int = 17, **more: Any) -> str:
    names = more.pop("names", None)
    options = more.pop("options", OptimizeOptions())
    model: onnx.ModelProto = parsed(text, opset, **(more or weights()))
    for weight in model.graph.initializer:
        weight.name = (names or {}).get(weight.name, weight.name)
    return structure_hash(normalise(ir.from_proto(model)).model, options)


def test_names_that_exporters_number_do_not_count() -> None:
    renamed = GRAPH.replace("row_1", "val_17").replace("part_2", "x3").replace("act_4", "z")
    others = GRAPH.replace("[N", "[s77").replace("MatMul(act_4, w)", "MatMul(act_4, val_9)")

    assert digest(renamed) == digest()
    assert digest(others, names={"w": "val_9"}) == digest()


def test_names_inside_of_branches_do_not_count() -> None:
    renamed = BRANCHES.replace("p_1", "other").replace("q_2", "another")

    assert digest(renamed, w=np.ones(2)) == digest(BRANCHES, w=np.ones(2))


def test_numbers_of_weights_do_not_count() -> None:
    assert digest(**weights(7)) == digest()


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("alpha: float = 0.1", "alpha: float = 0.2"),
        ("LeakyRelu <alpha: float = 0.1>", "Relu"),
        ("int64[1] begin = {0}, int64[1] end = {1}", "int64[1] begin = {1}, int64[1] end = {2}"),
        ("(row_1, part_2)", "(part_2, row_1)"),
        ("int64[N] id", "int32[N] id"),
        ("int64[N] id", "int64[4] id"),
        ("float[N, 2] x", "float[N, 3] x"),
        ("int64[N] id, float[N, 2] x", "int64[N] id, float[M, 2] x"),
        ("float[N, 2] x", "float[N, 2] x, float[N] more"),
    ],
)
def test_another_graph_has_another_digest(change: str, to: str) -> None:
    assert change in GRAPH
    assert digest(GRAPH.replace(change, to)) != digest()


def test_branches_that_compute_something_else_count() -> None:
    other = BRANCHES.replace("q_2 = Neg(x)", "q_2 = Abs(x)")

    assert digest(other, w=np.ones(2)) != digest(BRANCHES, w=np.ones(2))


def test_shapes_and_types_of_weights_count() -> None:
    half = GRAPH.replace("float[", "float16[")

    assert (
        len({digest(), digest(**weights(rows=6)), digest(half, **weights(dtype=np.float16))}) == 3
    )


def test_a_weight_that_is_an_output_counts() -> None:
    text = "g (float[N] x) => (float[N] y, float[K] z) { y = Relu(x) z = Identity(w) }"

    assert digest(text, w=np.ones(3, np.float32)) != digest(text, w=np.ones(4, np.float32))


def test_the_operator_set_counts() -> None:
    assert digest(opset=18) != digest()


@pytest.mark.parametrize(
    "options",
    [
        OptimizeOptions(min_table_bytes=1),
        OptimizeOptions(user_inputs=("x",)),
        OptimizeOptions(user_once=False),
        OptimizeOptions(axes={"x": InputAxis("none")}),
        OptimizeOptions(rows={"table": "f16"}),
        OptimizeOptions(dense="int8"),
    ],
)
def test_options_count(options: OptimizeOptions) -> None:
    assert digest(options=options) != digest()
