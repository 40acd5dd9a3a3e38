"""Models that nobody means well with: refused in words, or left whole, and never without an end.

The limits on work are counted, not timed: what is linear passes in seconds here, and what is
quadratic does not end within the patience of whoever runs the tests.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data

from anabranch_graph_opt import graph_files
from anabranch_graph_opt.graph_files import graph_bytes, write_graph
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimizer import optimize
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.optimized_models import OptimizedModel, cut_all, parsed
from anabranch_wire.errors import AnabranchError, Corrupt, InvalidInput

TABLE = np.random.default_rng(0).random((50, 4)).astype(np.float32)
LOOKUP = "g (int64[N] id) => (float[N, 4] y) { r = Gather(t, id) y = Relu(r) }"
ALL = OptimizeOptions(min_table_bytes=0)


def model_of(
    nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], weights: list[Any]
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "hostile", inputs, outputs, weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def ids(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, shape)


def floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def table(name: str = "t") -> onnx.TensorProto:
    return numpy_helper.from_array(TABLE, name)


# --- weights that are not there -------------------------------------------------------------------


def external(folder: Path, location: str, length: int = TABLE.nbytes) -> Path:
    """A model in `folder`/model whose table is said to be in the file `location`."""
    model = parsed(LOOKUP, t=TABLE)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    (folder / "model").mkdir()
    path = folder / "model" / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret", "link"])
def test_weights_outside_of_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(TABLE.tobytes())
    path = external(tmp_path, location)
    (path.parent / "link").symlink_to(tmp_path / "secret")

    with pytest.raises(InvalidInput, match="is outside of the folder of the model"):
        optimize(path, ALL)


def test_a_folder_may_be_the_one_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_bytes(TABLE.tobytes())
    path = external(tmp_path, "../secret")
    monkeypatch.chdir(path.parent)

    for source in ("model.onnx", path.read_bytes()):
        with pytest.raises(InvalidInput, match="is outside of the folder of the model"):
            optimize(source, ALL)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.write_bytes(b"short"), r"are needed, data has 5"),
        (lambda path: path.mkdir(), "is no regular file"),
        (lambda path: os.mkfifo(path), "is no regular file"),
        (lambda path: path.symlink_to(path), "no such file"),
    ],
)
def test_weights_that_are_missing_or_cut_off_are_refused(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    path = external(tmp_path, "data")
    make(path.parent / "data")

    with pytest.raises(InvalidInput, match=words):
        optimize(path, ALL)


def test_a_link_inside_of_the_folder_is_followed(tmp_path: Path) -> None:
    path = external(tmp_path, "data")
    (path.parent / "real").write_bytes(TABLE.tobytes())
    (path.parent / "data").symlink_to("real")

    (source,) = optimize(path, ALL).tables

    assert np.array_equal(source.tensor.numpy(), TABLE)


def test_a_shape_that_promises_more_than_there_is_is_refused() -> None:
    for dims in ((2**31, 2**31), (50, 5), (-1, 4)):
        model = parsed(LOOKUP, t=TABLE)
        del model.graph.initializer[0].dims[:]
        model.graph.initializer[0].dims.extend(dims)
        with pytest.raises(InvalidInput, match=r"initializer 't' has"):
            cut_all(model)
    model = parsed(LOOKUP, t=TABLE)
    model.graph.initializer[0].ClearField("raw_data")
    with pytest.raises(InvalidInput, match="has 0 numbers"):
        cut_all(model)


# --- sizes that nobody has ------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(2**40,), (2**40, 2**40), (2**31, 2**33)])
def test_huge_inputs_are_not_laid_out(sizes: tuple[int, ...]) -> None:
    model = model_of(
        [helper.make_node("Gather", ["t", "id"], ["y"])],
        [ids("id", "N", *sizes)],
        [floats("y", "N", *sizes, 4)],
        [table()],
    )

    (verdict,) = cut_all(model).verdicts

    assert verdict.table == "t"


@pytest.mark.parametrize(
    "body",
    [
        "a = Expand(id, far) y = Gather(t, a)",
        "a = Tile(id, far) y = Gather(t, a)",
        "s = ConstantOfShape(far) i = Cast <to: int = 7> (s) a = Add(i, id) y = Gather(t, a)",
        "r = Range(zero, much, one) a = Add(r, id) y = Gather(t, a)",
        "u = Unsqueeze(id, ones) a = Add(u, many) b = Add(a, manyt) y = Gather(t, b)",
    ],
)
def test_constants_cannot_make_ids_without_end(body: str) -> None:
    model = parsed(
        f"g (int64[N] id) => (float[A, B] y) {{ {body} }}",
        t=TABLE,
        far=np.array([2**45]),
        zero=np.array(0),
        one=np.array(1),
        ones=np.array([1]),
        much=np.array(2**50),
        many=np.zeros((1, 4000), np.int64),
        manyt=np.zeros((4000, 1, 1), np.int64),
    )

    try:
        (verdict,) = cut_all(model).verdicts
    except InvalidInput as error:
        message = error.message
    else:
        message = verdict.table

    assert message == "t" or "asks for more numbers than memory holds" in message


# --- forms that are none --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "r = Gather(t, a) a = Cast <to: int = 7> (b) b = Cast <to: int = 1> (a) y = Relu(r)",
        "a = Add(id, b) b = Add(id, a) y = Gather(t, a)",
    ],
)
def test_cycles_are_refused(body: str) -> None:
    with pytest.raises(InvalidInput, match="the graph has a cycle"):
        cut_all(parsed(f"g (int64[N] id) => (float[N, 4] y) {{ {body} }}", t=TABLE))


def test_operators_that_nobody_knows_are_left_alone() -> None:
    model = parsed(
        "g (int64[N] id) => (float[N, 4] y, float[N, 4] z) "
        "{ r = Gather(t, id) y = Surprise <x: int = 3> (r) h = Hashed(id) z = Gather(t, h) }",
        t=TABLE,
    )
    model.graph.node[1].domain = model.graph.node[2].domain = "com.example"
    model.opset_import.add(domain="com.example", version=1)

    optimized = cut_all(model)

    assert [verdict.cut for verdict in optimized.verdicts] == [True, False]
    assert "Hashed" in optimized.verdicts[1].reason
    assert "Surprise" in [node.op_type for node in optimized.dense.graph]


def test_functions_that_call_themselves_are_refused() -> None:
    model = parsed(LOOKUP, t=TABLE)
    model.graph.node[1].CopyFrom(helper.make_node("f", ["r"], ["y"], domain="own"))
    model.functions.append(
        helper.make_function(
            "own", "f", ["a"], ["b"], [helper.make_node("f", ["a"], ["b"], domain="own")],
            [helper.make_opsetid("own", 1)],
        )
    )  # fmt: skip
    model.opset_import.add(domain="own", version=1)

    with pytest.raises(AnabranchError):
        cut_all(model)


@pytest.mark.parametrize(
    "damage",
    [
        lambda graph: graph.node[0].input.pop(),
        lambda graph: graph.node[0].output.pop(),
        lambda graph: graph.node[0].input.append("nowhere"),
        lambda graph: graph.node[0].input.__setitem__(1, ""),
        lambda graph: graph.node[0].input.__setitem__(1, "nowhere"),
        lambda graph: graph.node[1].output.__setitem__(0, "r"),
        lambda graph: graph.node[1].output.append("y"),
        lambda graph: graph.node[0].attribute.append(helper.make_attribute("axis", "zero")),
        lambda graph: graph.node[0].attribute.append(helper.make_attribute("axis", 9)),
        lambda graph: graph.initializer.append(graph.initializer[0]),
        lambda graph: graph.initializer[0].__setattr__("name", ""),
        lambda graph: graph.initializer[0].__setattr__("data_type", 99),
        lambda graph: graph.input.append(graph.input[0]),
        lambda graph: graph.output.append(graph.output[0]),
        lambda graph: graph.output[0].__setattr__("name", "nowhere"),
        lambda graph: graph.node[0].__setattr__("op_type", ""),
        lambda graph: graph.node.append(graph.node[0]),
        lambda graph: graph.node[1].__setattr__("op_type", "Split"),
        lambda graph: graph.node[1].__setattr__("op_type", "If"),
        lambda graph: graph.node[1].__setattr__("op_type", "Loop"),
        lambda graph: graph.node[0].__setattr__("op_type", "Loop"),
    ],
)
def test_malformed_graphs_are_refused_or_left(damage: Callable[[onnx.GraphProto], Any]) -> None:
    model = parsed(LOOKUP, t=TABLE)
    damage(model.graph)

    try:
        lookups = len(cut_all(model).lookups)
    except AnabranchError:
        lookups = 0

    assert lookups <= 1


# --- size -----------------------------------------------------------------------------------------


def test_a_long_chain_of_layers() -> None:
    count = 4_000
    nodes = [helper.make_node("Gather", ["t", "id"], ["v0"])]
    nodes += [
        helper.make_node("Relu" if n % 2 else "Tanh", [f"v{n}"], [f"v{n + 1}"])
        for n in range(count)
    ]
    model = model_of(nodes, [ids("id", "N")], [floats(f"v{count}", "N", 4)], [table()])

    optimized = cut_all(model)

    assert len(optimized.dense.graph) == count
    assert len(optimized.lookups) == 1


@pytest.mark.parametrize("kinds", [("Unsqueeze", "Squeeze"), ("Abs", "Neg")])
def test_a_long_chain_of_ids(kinds: tuple[str, str]) -> None:
    count = 2_000
    more = ["one"] if kinds[0] == "Unsqueeze" else []
    nodes = [helper.make_node(kinds[n % 2], [f"v{n}", *more], [f"v{n + 1}"]) for n in range(count)]
    nodes.append(helper.make_node("Gather", ["t", f"v{count}"], ["y"]))
    one = numpy_helper.from_array(np.array([1]), "one")
    model = model_of(nodes, [ids("v0", "N")], [floats("y", "N", 4)], [table(), one])

    assert [verdict.cut for verdict in cut_all(model).verdicts] == [True]


def test_thousands_of_lookups_of_one_input() -> None:
    count = 400
    nodes, weights = [], [numpy_helper.from_array(np.array([1]), "axis")]
    for n in range(count):
        weights += [
            numpy_helper.from_array(np.array([n]), f"b{n}"),
            numpy_helper.from_array(np.array([n + 1]), f"e{n}"),
            numpy_helper.from_array(TABLE[:, :2], f"t{n}"),
        ]
        nodes += [
            helper.make_node("Slice", ["x", f"b{n}", f"e{n}", "axis"], [f"s{n}"]),
            helper.make_node("Cast", [f"s{n}"], [f"c{n}"], to=TensorProto.INT64),
            helper.make_node("Gather", [f"t{n}", f"c{n}"], [f"g{n}"]),
        ]
    nodes.append(helper.make_node("Concat", [f"g{n}" for n in range(count)], ["y"], axis=1))
    model = model_of(nodes, [floats("x", "N", count)], [floats("y", "N", count, 2)], weights)

    optimized = cut_all(model)

    assert len(optimized.lookups) == count
    assert len(optimized.dense.graph) == 1


def test_lookups_behind_one_long_chain_look_at_it_once() -> None:
    count, lookups = 400, 100
    nodes = [
        helper.make_node("Tanh" if n % 2 else "Neg", [f"v{n}"], [f"v{n + 1}"]) for n in range(count)
    ]
    nodes.append(helper.make_node("Cast", [f"v{count}"], ["i"], to=TensorProto.INT64))
    weights = [numpy_helper.from_array(np.array([n]), f"k{n}") for n in range(lookups)]
    for n in range(lookups):
        nodes.append(helper.make_node("Add", ["i", f"k{n}"], [f"a{n}"]))
        nodes.append(helper.make_node("Gather", ["t", f"a{n}"], [f"g{n}"]))
    nodes.append(helper.make_node("Concat", [f"g{n}" for n in range(lookups)], ["y"], axis=1))
    model = model_of(
        nodes, [floats("v0", "N")], [floats("y", "N", 4 * lookups)], [table(), *weights]
    )

    verdicts = cut_all(model).verdicts

    assert len(verdicts) == lookups
    assert all("which is no arithmetic of ids" in verdict.reason for verdict in verdicts)


def nested(depth: int, kind: str) -> onnx.ModelProto:
    """A lookup in the innermost of so many branches or loops."""
    inner = [
        helper.make_node("Gather", ["t", "id"], ["in"]),
        helper.make_node("Neg", ["in"], ["o"]),
    ]
    for level in range(depth):
        name = f"o{level}"
        output = [floats("o" if level == 0 else f"o{level - 1}", "N", 4)]
        if kind == "If":
            body = helper.make_graph(inner, f"b{level}", [], output)
            other = helper.make_graph(
                [helper.make_node("Identity", ["zeros"], [output[0].name])], f"c{level}", [], output
            )
            node = helper.make_node("If", ["yes"], [name], then_branch=body, else_branch=other)
        else:
            carried = helper.make_tensor_value_info(f"c{level}", TensorProto.BOOL, [])
            kept = helper.make_tensor_value_info(f"k{level}", TensorProto.BOOL, [])
            inner.append(helper.make_node("Identity", [carried.name], [kept.name]))
            body = helper.make_graph(
                inner, f"b{level}", [ids(f"i{level}"), carried], [kept, *output]
            )
            node = helper.make_node("Loop", ["one", "yes"], [name], body=body)
        inner = [node]
    inner.append(helper.make_node("Identity", [f"o{depth - 1}"], ["y"]))
    yes = helper.make_tensor_value_info("yes", TensorProto.BOOL, [])
    weights = [
        table(),
        numpy_helper.from_array(np.zeros((1, 4), np.float32), "zeros"),
        numpy_helper.from_array(np.array(1), "one"),
    ]
    return model_of(inner, [ids("id", "N"), yes], [floats("y", "N", 4)], weights)


@pytest.mark.parametrize("kind", ["If", "Loop"])
def test_bodies_in_bodies(kind: str) -> None:
    verdicts = cut_all(nested(20, kind)).verdicts

    assert verdicts
    assert not any(verdict.cut for verdict in verdicts)


def test_a_file_of_bodies_in_bodies_without_end_is_corrupt() -> None:
    content = b""
    for _ in range(200):  # graph.node[0].attribute[0].g
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            content = tag + length_of(content) + content

    with pytest.raises(Corrupt, match="not an ONNX model"):
        optimize(b"\x3a" + length_of(content) + content, ALL)


def length_of(content: bytes) -> bytes:
    """The length of a field of a protobuf."""
    number, digits = len(content), bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


# --- what is written ------------------------------------------------------------------------------


def test_shapes_of_inner_values_are_not_written() -> None:
    optimized = cut_all(parsed(LOOKUP, t=TABLE))
    assert any(node.outputs[0].shape is not None for node in optimized.dense.graph)

    written = onnx.load_model_from_string(graph_bytes(optimized.dense))

    assert list(written.graph.value_info) == []
    assert any(node.outputs[0].shape is not None for node in optimized.dense.graph)


def test_many_weights_lie_beside_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(0).random((40, 40)).astype(np.float32)
    model = parsed("g (float[N, 40] x) => (float[N, 40] y) { y = MatMul(x, w) }", w=weight)
    optimized = cut_all(model)
    batch: Any = {"x": np.ones((2, 40), np.float32)}

    write_graph(optimized.dense, tmp_path / "small.onnx")
    monkeypatch.setattr(graph_files, "EXTERNAL_BYTES", weight.nbytes - 1)
    write_graph(optimized.dense, tmp_path / "large.onnx")

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "large.onnx",
        "large.onnx.data",
        "small.onnx",
    ]
    answers = [
        OrtModelRunner().run(tmp_path / name, batch)["y"] for name in ("small.onnx", "large.onnx")
    ]
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(OptimizedModel(optimized).run(batch)["y"], answers[0])


def test_a_model_whose_weights_lie_beside_it_is_optimised(tmp_path: Path) -> None:
    model = parsed(LOOKUP, t=TABLE)
    convert_model_to_external_data(model, location="weights", size_threshold=0)
    onnx.save(model, tmp_path / "model.onnx")

    (source,) = optimize(tmp_path / "model.onnx", ALL).tables

    assert isinstance(source.tensor, ir.ExternalTensor)
    assert np.array_equal(source.tensor.numpy(), TABLE)
