"""Bags of varying length, as model.yaml declares them: proven ones move into the lookup."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.parity.reference_lookups import look_up
from anabranch_graph_opt.row_axes import InputAxis
from anabranch_graph_opt.running import Array
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.lookups import Offsets, Values

ROWS, DIM = 40, 3
AXES = {
    "ids": InputAxis("ids", "offsets"),
    "w": InputAxis("ids", "offsets"),
    "offsets": InputAxis("bag"),
    "x": InputAxis("rows"),
}
SUM = "pooled = ReduceSum <keepdims = 0> (bag, first)"
WEIGHTED = (
    "f = Slice(w, a, z, first) g = Unsqueeze(f, second) v = Mul(bag, g) "
    "pooled = ReduceSum <keepdims = 0> (v, first)"
)
WITHOUT_END = """k = Shape(ids) bounds = Concat <axis = 0> (offsets, k)"""
WITH_END = "bounds = Identity(offsets)"


def model(nodes: str, bounds: str = WITHOUT_END) -> onnx.ModelProto:
    """Return y = x + the pooled rows of each bag, as TorchScript writes an EmbeddingBag."""
    size = "N" if bounds == WITHOUT_END else "M"
    made = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (int64[K] ids, float[K] w, int64[{size}] offsets, float[N, {DIM}] x) =>
        (float[N, {DIM}] y)
        <bool go = {{1}}, int64[1] first = {{0}}, int64[1] second = {{1}},
         int64[1] far = {{9223372036854775807}}>
        {{ {bounds} ends = Slice(bounds, second, far, first)
           n = Shape(ends) rows = Squeeze(n)
           bags = Loop (rows, go) <body = b (int64 i, bool c) => (bool d, float[{DIM}] pooled)
            {{ d = Identity(c) s = Gather(bounds, i) e = Gather(ends, i)
               a = Unsqueeze(s, first) z = Unsqueeze(e, first)
               keys = Slice(ids, a, z, first) bag = Gather(table, keys) {nodes} }}>
           y = Add(bags, x) }}"""
    )
    table = np.random.default_rng(3).standard_normal((ROWS, DIM), np.float32)
    made.graph.initializer.append(numpy_helper.from_array(table, "table"))
    return made


def optimized_of(
    proto: onnx.ModelProto, axes: Mapping[str, InputAxis] = MappingProxyType(AXES)
) -> Optimized:
    used = {value.name for value in proto.graph.input}
    own = {name: axis for name, axis in axes.items() if name in used}
    return optimize(proto.SerializeToString(), OptimizeOptions(min_table_bytes=0, axes=own))


def check_equal(proto: onnx.ModelProto, optimized: Optimized, *, with_end: bool) -> None:
    """Check that it answers as before: bags that are empty, single, long, and of repeated ids."""
    runner = OrtModelRunner()
    rng = np.random.default_rng(8)
    for lengths in ((2, 0, 5), (0, 1, 0, 0), (3,), (1, 1), (0, 0, 9)):
        total = sum(lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)])[: len(lengths) + with_end]
        batch: dict[str, Array] = {
            "ids": rng.integers(0, ROWS, total) if total < 9 else np.full(total, 7),
            "w": rng.standard_normal(total, np.float32),
            "offsets": offsets.astype(np.int64),
            "x": rng.standard_normal((len(lengths), DIM), np.float32),
        }
        expected = runner.run(proto.SerializeToString(), batch)["y"]
        passed = {name: batch[name] for name in optimized.pass_through}
        buffers = look_up(optimized, batch, len(lengths))
        found = runner.run(graph_bytes(optimized.dense), {**passed, **buffers})["y"]
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bounds", [WITHOUT_END, WITH_END], ids=["starts", "starts and end"])
@pytest.mark.parametrize("nodes", [SUM, WEIGHTED], ids=["sum", "weighted"])
def test_bags_of_varying_length_move_into_the_lookup(nodes: str, bounds: str) -> None:
    proto = model(nodes, bounds)

    optimized = optimized_of(proto)

    [lookup] = optimized.lookups
    assert (lookup.combiner, lookup.ids.input) == ("sum", "ids")
    assert lookup.lengths == Offsets(input="offsets")
    assert lookup.weights == (Values(input="w") if nodes == WEIGHTED else None)
    assert optimized.pass_through == ("x",)
    check_equal(proto, optimized, with_end=bounds == WITH_END)


@pytest.mark.parametrize(
    "nodes",
    [
        "t = ReduceSum <keepdims = 0> (bag, first) pooled = Tanh(t)",
        "f = Slice(w, a, z, first) g = Unsqueeze(f, second) v = Add(bag, g) "
        "pooled = ReduceSum <keepdims = 0> (v, first)",
        "p = Equal(keys, forty) k = Not(p) f = Cast <to = 1> (k) g = Unsqueeze(f, second) "
        "v = Mul(bag, g) pooled = ReduceSum <keepdims = 0> (v, first)",
    ],
    ids=["another function", "shifted by weights", "an id that does not count"],
)
def test_what_is_no_bag_stays_in_the_graph(nodes: str) -> None:
    proto = model(nodes)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(39, np.int64), "forty"))

    optimized = optimized_of(proto)

    assert optimized.lookups == ()
    assert not optimized.verdicts[0].cut


def test_weights_of_other_bags_are_none() -> None:
    axes = {**AXES, "w": InputAxis("rows")}

    assert optimized_of(model(WEIGHTED), axes).lookups == ()


def test_without_another_input_nothing_tells_how_many_rows_there_are() -> None:
    axes = {**AXES, "x": InputAxis("none")}
    proto = model(SUM)
    size = proto.graph.input[3].type.tensor_type.shape.dim[0]
    size.dim_value = 3

    assert optimized_of(proto, axes).lookups == ()
