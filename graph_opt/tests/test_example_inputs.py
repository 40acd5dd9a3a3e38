"""Made-up inputs stay inside the tables and lengths of the model they are for."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser

from anabranch_graph_opt.example_inputs import ExampleInputs, generate_inputs
from anabranch_graph_opt.row_axes import InputAxis
from anabranch_graph_opt.running import Array
from anabranch_graph_opt.signature import read_signature
from anabranch_wire.errors import InvalidInput


def model(text: str, **tables: Array) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    for name, values in tables.items():
        proto.graph.initializer.append(numpy_helper.from_array(values, name))
    return proto


def batch(
    proto: onnx.ModelProto, rows: int = 400, axes: dict[str, InputAxis] | None = None
) -> dict[str, Array]:
    """A made-up batch, after ONNX Runtime has accepted it."""
    inputs = generate_inputs(read_signature(proto), proto, rows, np.random.default_rng(7), axes)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    session.run(None, inputs)
    return inputs


def table(rows: int, columns: int = 2) -> Array:
    return np.zeros((rows, columns), np.float32)


def test_ids_cover_their_table_and_stay_inside() -> None:
    ids = batch(model("g (int64[n] id) => (float[n, d] y) { y = Gather(t, id) }", t=table(17)))[
        "id"
    ]

    assert ids.dtype == np.int64
    assert (ids.min(), ids.max()) == (0, 16)


def test_an_id_is_limited_by_the_smallest_table_it_reaches() -> None:
    proto = model(
        """g (int32[n] id) => (float[n, d] y)
        { wide = Cast <to = 7> (id) a = Gather(t, wide) b = Gather(s, id) y = Add(a, b) }""",
        t=table(100),
        s=table(9),
    )

    assert batch(proto)["id"].max() == 8


def test_columns_of_one_packed_float_input_have_their_own_ranges() -> None:
    proto = model(
        """g (float[n, 3] X) => (float[n, 1, 2] a, float[n, 2] b, float[n, 1] dense)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},
         int64 middle = {1}>
        { first = Slice(X, zero, one, one) i = Cast <to = 7> (first) a = Gather(t, i)
          second = Gather <axis = 1> (X, middle) j = Cast <to = 7> (second) b = Gather(s, j)
          dense = Slice(X, two, three, one) }""",
        t=table(1000),
        s=table(5),
    )

    x = batch(proto)["X"].astype(np.float64)

    assert x[:, 0].max() > 900
    assert set(x[:, 1]) == {0, 1, 2, 3, 4}
    assert np.all((x[:, 2] >= 0) & (x[:, 2] < 1))


def test_offsets_into_a_stacked_table_are_subtracted() -> None:
    proto = model(
        """g (int64[n, 3] x) => (float[n, 3, 2] y)
        <int64[1, 3] start = {0, 10, 15}> { id = Add(x, start) y = Gather(t, id) }""",
        t=table(20),
    )

    assert batch(proto)["x"].max(axis=0).tolist() == [19, 9, 4]


def test_a_cross_of_two_inputs_stays_inside() -> None:
    proto = model(
        """g (int64[n] a, int64[n] b) => (float[n, 2] y) <int64 wide = {50}>
        { left = Mul(a, wide) id = Add(left, b) y = Gather(t, id) }""",
        t=table(1000),
    )

    inputs = batch(proto)

    assert (inputs["a"].astype(np.int64) * 50 + inputs["b"].astype(np.int64)).max() < 1000
    assert inputs["a"].max() > 0


def test_hashed_ids_are_not_narrowed_by_their_table() -> None:
    proto = model(
        """g (int64[n] a) => (float[n, 2] y) <int64 buckets = {8}>
        { id = Mod(a, buckets) y = Gather(t, id) }""",
        t=table(8),
    )

    batch(proto)


def test_ids_fetched_from_a_table_of_ids_need_no_narrowing() -> None:
    proto = model(
        """g (int64[n] item) => (float[n, 2] y)
        { category = Gather(side, item) y = Gather(t, category) }""",
        t=table(4),
        side=np.arange(30) % 4,
    )

    assert batch(proto)["item"].max() > 20


def test_lengths_do_not_pass_the_sequence_they_mask() -> None:
    proto = model(
        """g (int64[n, 5] seq, int64[n, 1] length) => (bool[n, 5] mask)
        <int64[5] positions = {0, 1, 2, 3, 4}> { mask = Less(positions, length) }"""
    )

    lengths = batch(proto)["length"]

    assert (lengths.min(), lengths.max()) == (1, 5)


def test_lengths_of_a_recurrent_layer_do_not_pass_its_steps() -> None:
    proto = model(
        """g (float[4, n, 2] x, int32[n] length) => (float[4, 1, n, 3] y)
        { y = GRU <hidden_size = 3> (x, w, r, , length) }""",
        w=np.ones((1, 9, 2), np.float32),
        r=np.ones((1, 9, 3), np.float32),
    )

    assert batch(proto, 4, {"x": InputAxis("none")})["length"].max() <= 4


def test_axes_with_one_symbol_get_one_size_and_vary_between_batches() -> None:
    proto = model("g (float[n, len] a, float[n, len] b) => (float[n, len] y) { y = Add(a, b) }")
    source = ExampleInputs(read_signature(proto), proto)
    rng = np.random.default_rng(0)
    shapes = [source.batch(3, rng)["a"].shape for _ in range(20)]

    assert len(set(shapes)) > 1


def test_sequences_are_not_longer_than_the_table_of_positions() -> None:
    proto = model(
        """g (int64[n, len] seq) => (float[len, 2] y)
        <int64 zero = {0}, int64 one = {1}>
        { shape = Shape(seq) length = Gather(shape, one) steps = Range(zero, length, one)
          y = Gather(positions, steps) }""",
        positions=table(3),
    )
    for seed in range(12):
        inputs = generate_inputs(read_signature(proto), proto, 2, np.random.default_rng(seed))
        assert inputs["seq"].shape[1] <= 3


def test_bags_are_consistent() -> None:
    proto = model(
        "g (int64[m] ids, int64[n] starts) => (float[m, 2] y, int64[n] s) "
        "{ y = Gather(t, ids) s = Identity(starts) }",
        t=table(6),
    )
    axes = {"ids": InputAxis("ids", bag="starts"), "starts": InputAxis("bag")}

    inputs = batch(proto, 9, axes)

    assert inputs["starts"].shape == (9,)
    assert inputs["starts"][0] == 0
    assert np.all(np.diff(inputs["starts"]) >= 0)
    assert inputs["starts"][-1] <= len(inputs["ids"])


def test_every_datatype_is_made_up_in_its_own_carrier() -> None:
    kinds = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float double bfloat16"
    kinds += " string"
    declared = ", ".join(f"{kind}[n] x{i}" for i, kind in enumerate(kinds.split()))
    proto = model(f"g ({declared}) => (bool[n] y) {{ y = Identity(x0) }}")
    signature = read_signature(proto)

    inputs = generate_inputs(signature, proto, 3, np.random.default_rng(0))

    assert {spec.name: inputs[spec.name].dtype for spec in signature.inputs} == {
        spec.name: spec.dtype for spec in signature.inputs
    }
    assert isinstance(inputs["x13"][0], bytes)


def test_no_rows_are_refused() -> None:
    proto = model("g (float[n] x) => (float[n] y) { y = Relu(x) }")

    with pytest.raises(InvalidInput, match="0 rows"):
        generate_inputs(read_signature(proto), proto, 0, np.random.default_rng(0))


def test_tables_of_any_size_cost_nothing() -> None:
    # Rows are not there: what is asked of a table is its shape alone.
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> large (int64[N] ids) => (float[N, 8] y) '
        "{ rows = Gather(table, ids) \n back = Transpose(table) \n y = MatMul(rows, back2) }"
    )
    table = onnx.TensorProto(
        name="table",
        data_type=onnx.TensorProto.FLOAT,
        dims=[2**31 - 1, 512],
        data_location=onnx.TensorProto.EXTERNAL,
    )
    table.external_data.add(key="location", value="nowhere.bin")
    model.graph.initializer.append(table)
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.zeros((512, 8), np.float32), "back2")
    )

    batch = generate_inputs(read_signature(model), model, 50, np.random.default_rng(1))

    assert batch["ids"].min() >= 0
    assert batch["ids"].max() > 1000
