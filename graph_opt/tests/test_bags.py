"""Pooling that moves into lookups: what is proven is fused and equal, what is no bag stays."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.parity.reference_lookups import look_up
from anabranch_graph_opt.running import Array
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.lookups import Values

ROWS, LENGTH, DIM = 50, 6, 4
OPTIONS = OptimizeOptions(min_table_bytes=0)

CONSTANTS = f"""
    int64 zero = {{0}}, int64 one = {{1}}, int64 length = {{{LENGTH}}},
    bool go = {{1}}, int64[1] flat = {{-1}}, int64[1] first = {{0}}, int64[1] second = {{1}},
    int64[1] third = {{2}}, int64[1] far = {{9223372036854775807}},
    int64[3] times = {{1, 1, {DIM}}}
"""
NUMBERS = "none = Constant <value_float = 0.0> () few = Constant <value_float = 0.00000001> ()"
"""What is no weight of the model: exporters write it as nodes."""
INPUTS = f"int64[N, {LENGTH}] ids, int64[N, 1] count, float[N, {LENGTH}] w, float[N, {LENGTH}] x"

MASKS = {
    "ids": "b = Equal(ids, zero) k = Not(b) mask = Cast <to = 1> (k)",
    "lengths": "at = Range(zero, length, one) k = Less(at, count) mask = Cast <to = 1> (k)",
    "sent": "mask = Identity(w)",
    "computed": "mask = Mul(w, x)",
}
POOLINGS = {
    "rows": "m = Unsqueeze(mask, third) v = Mul(rows, m) s = ReduceSum <keepdims = 0> (v, second)",
    "repeated": "m = Unsqueeze(mask, third) t = Tile(m, times) v = Mul(t, rows) "
    "s = ReduceSum <keepdims = 0> (v, second)",
    "product": "m = Unsqueeze(mask, second) p = MatMul(m, rows) s = Squeeze(p, second)",
    "selected": "z = Cast <to = 9> (mask) m = Unsqueeze(z, third) v = Where(m, rows, none) "
    "s = ReduceSum <keepdims = 0> (v, second)",
    "turned": "m = Unsqueeze(mask, third) v = Mul(rows, m) u = Transpose <perm = [0, 2, 1]> (v) "
    "s = ReduceSum <keepdims = 0> (u, third)",
    "averaged": "m = Unsqueeze(mask, third) v = Mul(rows, m) "
    "s = ReduceMean <axes = [1], keepdims = 0> (v)",
}
DIVISORS = {
    "none": "y = Identity(s)",
    "count": "c = ReduceSum(mask, second) a = Abs(c) e = Add(a, few) y = Div(s, e)",
    "root": "c = ReduceSum(mask, second) a = Abs(c) r = Sqrt(a) e = Add(r, few) q = Div(s, e) "
    "y = Unsqueeze(q, second)",
}


def model(nodes: str, output: str = "M", more: str = "", opset: int = 17) -> onnx.ModelProto:
    """Return a graph that looks `rows` [N, LENGTH, DIM] up, and does what `nodes` say."""
    constants = ", ".join(each for each in (CONSTANTS, more) if each)
    made = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : {opset}]> g ({INPUTS}) => (float[{output}] y) '
        f"<{constants}> {{ rows = Gather(table, ids) {NUMBERS} {nodes} }}"
    )
    table = np.random.default_rng(3).standard_normal((ROWS, DIM), np.float32)
    made.graph.initializer.append(numpy_helper.from_array(table, "table"))
    return made


def batch(rows: int, seed: int = 5) -> dict[str, Array]:
    """Return ids with padding, an empty bag first, a full one last, and one of a single id."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, ROWS, (rows, LENGTH))
    ids[rng.random(ids.shape) < 0.4] = 0
    count = rng.integers(0, LENGTH + 1, (rows, 1))
    ids[0], count[0] = 0, 0
    ids[-1], count[-1] = rng.integers(1, ROWS, LENGTH), LENGTH
    if rows > 2:
        ids[1], ids[1, 0], count[1] = 0, 7, 1
        ids[2] = 9
    floats = {name: rng.standard_normal((rows, LENGTH), np.float32) for name in ("w", "x")}
    return {"ids": ids, "count": count, **floats}


def answer(optimized: Optimized, inputs: Mapping[str, Array]) -> Array:
    """Compute a batch as a server does, lookups by their definition."""
    runner = OrtModelRunner()
    arrays = dict(inputs)
    if optimized.prelude is not None:
        wanted = [str(value.name) for value in optimized.prelude.graph.inputs]
        made = runner.run(graph_bytes(optimized.prelude), {name: arrays[name] for name in wanted})
        arrays.update(made)
    buffers = look_up(optimized, arrays, len(inputs["ids"]))
    passed = {name: inputs[name] for name in optimized.pass_through}
    return runner.run(graph_bytes(optimized.dense), {**passed, **buffers})["y"]


def check(proto: onnx.ModelProto, combiners: Sequence[str]) -> Optimized:
    """Check what became of the lookups of a graph, and that it answers as before."""
    source = proto.SerializeToString()
    optimized = optimize(source, OPTIONS)
    names = {spec.name for spec in optimized.inputs}
    for rows in (1, 2, 9):
        inputs = {name: array for name, array in batch(rows).items() if name in names}
        expected = OrtModelRunner().run(source, inputs)["y"]
        found = answer(optimized, inputs)
        assert found.shape == expected.shape
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert [lookup.combiner for lookup in optimized.lookups] == list(combiners)
    return optimized


@pytest.mark.parametrize(
    ("mask", "pooling", "divisor"),
    [each for each in product(MASKS, POOLINGS, DIVISORS)],
    ids=lambda name: name,
)
def test_masked_pooling_moves_into_the_lookup(mask: str, pooling: str, divisor: str) -> None:
    nodes = " ".join((MASKS[mask], POOLINGS[pooling], DIVISORS[divisor]))
    output = f"N, 1, {DIM}" if divisor == "root" else f"N, {DIM}"

    optimized = check(model(nodes, output), ["sum"])

    [lookup] = optimized.lookups
    assert lookup.weights is not None
    assert lookup.max_length == LENGTH
    assert [buffer.columns for buffer in optimized.buffers] == [DIM]
    assert [node.op_type for node in optimized.dense.graph if node.op_type.startswith("Red")] == []


def test_weights_that_a_request_brings_are_read_from_its_input() -> None:
    optimized = check(
        model(" ".join((MASKS["sent"], POOLINGS["rows"], DIVISORS["none"])), f"N, {DIM}"), ["sum"]
    )

    assert optimized.prelude is None
    assert optimized.lookups[0].weights == Values(input="w")


@pytest.mark.parametrize(
    ("nodes", "combiner"),
    [
        ("y = ReduceSum <keepdims = 0> (rows, second)", "sum"),
        ("y = ReduceMean <axes = [1], keepdims = 0> (rows)", "mean"),
        ("y = ReduceMax <axes = [-2], keepdims = 0> (rows)", "max"),
    ],
)
def test_plain_pooling_needs_no_weights(nodes: str, combiner: str) -> None:
    optimized = check(model(nodes, f"N, {DIM}"), [combiner])

    assert optimized.prelude is None
    assert optimized.lookups[0].weights is None
    assert optimized.verdicts[0].ids == f"{combiner} of ids[0:{LENGTH}]"


def test_fields_with_offsets_of_their_own_are_put_together_by_a_prelude() -> None:
    proto = model(
        "y = ReduceSum <keepdims = 0> (rows, second)",
        f"N, {DIM}",
        f"int64[{LENGTH}] offsets = {{0, 3, 6, 9, 12, 15}}",
    )
    proto.graph.node[0].input[1] = "shifted"
    shift = onnx.helper.make_node("Add", ["small", "offsets"], ["shifted"])
    small = onnx.helper.make_node("Mod", ["ids", "length"], ["small"])
    proto.graph.node.insert(0, shift)
    proto.graph.node.insert(0, small)

    optimized = check(proto, ["sum"])

    assert optimized.lookups[0].ids.input == "ab_ids_0"


MUTATIONS = {
    "the rows have another use": "v = ReduceSum <keepdims = 0> (rows, second) "
    "t = ReduceMax <axes = [1], keepdims = 0> (rows) y = Add(v, t)",
    "the numbers of a row are summed": "y = ReduceSum <keepdims = 0> (rows, third)",
    "all is summed": "both = Concat <axis = 0> (second, third) "
    "v = ReduceSum <keepdims = 0> (rows, both) y = Unsqueeze(v, second)",
    "the mask is of rows of a table": "g = Gather(table, ids) h = Sigmoid(g) v = Mul(rows, h) "
    "y = ReduceSum <keepdims = 0> (v, second)",
    "factors are trained": "v = Mul(rows, trained) y = ReduceSum <keepdims = 0> (v, second)",
    "factors differ along a row": "c = Cast <to = 1> (count) d = Unsqueeze(c, third) "
    "e = Mul(d, steps) v = Mul(rows, e) y = ReduceSum <keepdims = 0> (v, second)",
    "rows are shifted": "m = Unsqueeze(w, third) v = Sub(rows, m) "
    "y = ReduceMax <axes = [1], keepdims = 0> (v)",
    "rows are squared": "v = Mul(rows, rows) y = ReduceSum <keepdims = 0> (v, second)",
    "weights are a layer's": "a = Softmax <axis = 1> (w) m = Unsqueeze(a, third) "
    "v = Mul(rows, m) y = ReduceSum <keepdims = 0> (v, second)",
    "weights are of other rows": "t = ReduceSum <keepdims = 1> (w, first) e = Mul(w, t) "
    "m = Unsqueeze(e, third) v = Mul(rows, m) y = ReduceSum <keepdims = 0> (v, second)",
    "the largest of weighted rows": "m = Unsqueeze(w, third) v = Mul(rows, m) "
    "y = ReduceMax <axes = [1], keepdims = 0> (v)",
    "the product is another one": "m = Unsqueeze(w, second) a = Concat <axis = 1> (m, m) "
    "p = MatMul(a, rows) y = ReduceMax <axes = [1], keepdims = 0> (p)",
    "rows leave the graph": "y = Identity(rows)",
}


@pytest.mark.parametrize("nodes", MUTATIONS.values(), ids=MUTATIONS)
def test_what_is_no_bag_stays_a_sequence(nodes: str) -> None:
    output = {"y = Identity(rows)": f"N, {LENGTH}, {DIM}"}.get(nodes, "N, M")
    trained = ", ".join(str(number) for number in range(1, LENGTH + 1))
    more = (
        f"float[{LENGTH}, 1] trained = {{{trained}}}, float[{DIM}] steps = {{1.0, 2.0, 3.0, 4.0}}"
    )

    optimized = optimize(model(nodes, output, more).SerializeToString(), OPTIONS)

    assert {lookup.combiner for lookup in optimized.lookups} == {"none"}
    check(model(nodes, output, more), [lookup.combiner for lookup in optimized.lookups])


BAGS = """
    n = Shape <end = 1> (ids) rows_ = Squeeze(n) total = Mul(rows_, length)
    starts = Range(zero, total, length) end = Unsqueeze(total, first)
    bounds = Concat <axis = 0> (starts, end) ends = Slice(bounds, second, far, first)
    each = Reshape(ids, flat) factors = Reshape(w, flat)
"""


def loop(nodes: str, captured: str = "") -> onnx.ModelProto:
    """Return an EmbeddingBag as TorchScript writes it; `nodes` make `pooled` of `bag`."""
    made = model(
        f"""{BAGS} {captured}
        y = Loop (rows_, go) <body = b (int64 i, bool c) => (bool d, float[{DIM}] pooled)
            {{ d = Identity(c) s = Gather(bounds, i) e = Gather(ends, i)
               a = Unsqueeze(s, first) z = Unsqueeze(e, first)
               keys = Slice(each, a, z, first) bag = Gather(table, keys) {nodes} }}>""",
        f"N, {DIM}",
    )
    del made.graph.node[0]
    return made


@pytest.mark.parametrize(
    ("nodes", "combiner"),
    [
        ("pooled = ReduceSum <keepdims = 0> (bag, first)", "sum"),
        ("pooled = ReduceMean <axes = [0], keepdims = 0> (bag)", "mean"),
        ("pooled = ReduceMax <axes = [0], keepdims = 0> (bag)", "max"),
    ],
)
def test_a_loop_over_bags_of_one_length_moves_into_the_lookup(nodes: str, combiner: str) -> None:
    optimized = check(loop(nodes), [combiner])

    assert "Loop" not in {node.op_type for node in optimized.dense.graph}
    assert optimized.lookups[0].weights is None


def test_a_loop_over_weighted_bags_moves_into_the_lookup() -> None:
    optimized = check(
        loop(
            "f = Slice(factors, a, z, first) g = Unsqueeze(f, second) v = Mul(bag, g) "
            "pooled = ReduceSum <keepdims = 0> (v, first)"
        ),
        ["sum"],
    )

    assert optimized.lookups[0].weights == Values(input="w")


@pytest.mark.parametrize(
    ("nodes", "captured"),
    [
        # Ids that count as padding: the same for most ids, another sum for a few.
        (
            "f = Slice(kept, a, z, first) g = Unsqueeze(f, second) v = Where(g, bag, none) "
            "pooled = ReduceSum <keepdims = 0> (v, first)",
            "p = Equal(each, forty) kept = Not(p)",
        ),
        # The row before the bag counts as well.
        (
            "o = Sub(a, second) q = Max(o, first) more = Slice(each, q, z, first) "
            "others = Gather(table, more) pooled = ReduceSum <keepdims = 0> (others, first)",
            "",
        ),
        ("v = ReduceSum <keepdims = 0> (bag, first) pooled = Tanh(v)", ""),
    ],
    ids=["padding", "another start", "no sum"],
)
def test_a_loop_that_does_something_else_stays(nodes: str, captured: str) -> None:
    proto = loop(nodes, captured)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(40, np.int64), "forty"))

    optimized = optimize(proto.SerializeToString(), OPTIONS)

    assert {lookup.combiner for lookup in optimized.lookups} <= {"none"}
    assert "Loop" in {node.op_type for node in optimized.dense.graph}
    check(proto, ["none"] * len(optimized.lookups))


def test_tables_of_half_numbers_are_pooled_as_the_graph_does_it() -> None:
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (int64[N, {LENGTH}] ids) => '
        f"(float16[N, {DIM}] y) <int64[1] second = {{1}}> "
        "{ rows = Gather(table, ids) y = ReduceSum <keepdims = 0> (rows, second) }"
    )
    table = np.random.default_rng(3).standard_normal((ROWS, DIM)).astype(np.float16)
    proto.graph.initializer.append(numpy_helper.from_array(table, "table"))

    optimized = optimize(proto.SerializeToString(), OPTIONS)

    assert [lookup.combiner for lookup in optimized.lookups] == ["none"]


@pytest.mark.parametrize("weights", ["sent", "ids"])
def test_what_holds_a_user_is_looked_up_once_where_no_prelude_is_needed(weights: str) -> None:
    nodes = " ".join((MASKS[weights], POOLINGS["rows"]))
    proto = model(f"{nodes} u = MatMul(s, square) r = MatMul(x, tall) y = Add(u, r)", f"N, {DIM}")
    for name, shape in (("square", (DIM, DIM)), ("tall", (LENGTH, DIM))):
        numbers = np.random.default_rng(1).standard_normal(shape, np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(numbers, name))
    options = OptimizeOptions(min_table_bytes=0, user_inputs=("ids", "w", "count"))

    optimized = optimize(proto.SerializeToString(), options)

    assert optimized.user is not None
    [lookup] = optimized.lookups
    assert (lookup.side, lookup.combiner) == ("user", "sum" if weights == "sent" else "none")
