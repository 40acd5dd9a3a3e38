"""What a plan and its parts say of the original, put together again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from msgspec import structs
from onnx import parser

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.model_source import open_model
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.reassembly import reassembled
from anabranch_graph_opt.row_axes import InputAxis
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_graph_opt.signature import Signature, read_signature
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_wire.errors import InvalidInput
from anabranch_wire.lookups import Ids, Lookup, Offsets, Output, Values
from anabranch_wire.missing import Original
from anabranch_wire.plan import Buffer, Graphs, Plan, PlanInput, PlanTable, Source
from anabranch_wire.tensors import Datatype, TensorSpec

MODELS = corpus_models() or tree_models()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_rows_flow_as_in_the_original(model: CorpusModel) -> None:
    path = model.folder / "model.onnx"
    signature = read_signature(path)

    whole = put_together(optimize(path, OptimizeOptions(min_table_bytes=0)), signature)

    assert read_signature(whole).inputs == signature.inputs
    assert read_signature(whole).symbols.items() >= input_symbols(signature).items()
    expected, found = prove_rows(path), prove_rows(whole)
    assert replace(found, reason="") == replace(expected, reason="")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_made_up_ids_are_as_far_apart_as_for_the_original(model: CorpusModel) -> None:
    path = model.folder / "model.onnx"
    signature = read_signature(path)
    whole = put_together(optimize(path, OptimizeOptions(min_table_bytes=0)), signature)

    expected = ExampleInputs(signature, path).batch(64, np.random.default_rng(3))
    found = ExampleInputs(signature, whole).batch(64, np.random.default_rng(3))

    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


INPUTS: tuple[tuple[str, Datatype, str], ...] = (
    ("ids", "INT64", "M"), ("factors", "FP32", "M"), ("offsets", "INT64", "N"),
)  # fmt: skip
USER_SIDE = """
score (int64[N, 3] hist, int64[N, 1] item, float[N, 2] price) => (float[N, 1] y)
<float[50, 8] table = {%s}, float[8, 8] w = {%s}, float[10, 1] v = {%s}, int64[1] axis = {1},
 int64[2] flat = {0, 8}>
{ h = Gather(table, hist) pooled = ReduceSum <keepdims: int = 0> (h, axis)
  u = MatMul(pooled, w) i3 = Gather(table, item) i = Reshape(i3, flat)
  p = Mul(u, i) both = Concat <axis: int = 1> (p, price) y = MatMul(both, v) }
"""


def test_with_users_computed_once_each_row_is_a_user_of_its_own() -> None:
    source = user_side()
    options = OptimizeOptions(min_table_bytes=0, user_inputs=("hist",))
    optimized = optimize(source, options)
    assert optimized.user is not None

    whole = put_together(optimized, read_signature(source))

    assert [str(value.name) for value in whole.graph.inputs] == ["hist", "item", "price"]
    proof = prove_rows(whole)
    assert proof.independent
    assert proof.input_axes == {"hist": 0, "item": 0, "price": 0}
    assert proof.output_axes == {"y": 0}


USERS = ("uid", "city", "hist_iid", "hist_cid", "age")


@pytest.mark.parametrize(
    "model",
    [one for one in MODELS if {*USERS} & {*one.batches()[0]} and "own_" not in one.name],
    ids=lambda model: model.name,
)
def test_with_users_once_rows_of_real_models_flow_as_in_the_original(model: CorpusModel) -> None:
    path = model.folder / "model.onnx"
    options = OptimizeOptions(min_table_bytes=0, user_inputs=USERS)
    whole = put_together(optimize(path, options), read_signature(path))

    expected, found = prove_rows(path), prove_rows(whole)

    assert replace(found, reason="") == replace(expected, reason="")


def test_ids_of_bags_stay_in_their_table_and_requests_apart() -> None:
    dense = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        "g (float[N, 4] ab_rows) => (float[N, 4] y) { y = Relu(ab_rows) }"
    )
    plan = Plan(
        format=1,
        source=Source(file="model.onnx", sha256="0" * 64),
        structure_hash=f"sha256:{'0' * 64}",
        graphs=Graphs(dense="dense.onnx"),
        tables=(
            PlanTable(
                name="t", file="t.seg", rows=9, dim=4, dtype="f32", keys="dense_id",
                missing=Original(),
            ),
        ),
        buffers=(Buffer(name="ab_rows", side="row", dtype="f32", columns=4),),
        lookups=(
            Lookup(
                table=0, side="row", ids=Ids(input="ids", add=3), combiner="mean",
                lengths=Offsets(input="offsets"), weights=Values(input="factors"),
                max_length=2**20, output=Output(buffer=0, column=0),
            ),
        ),
        weights={},
        inputs=tuple(
            PlanInput(name=name, datatype=datatype, shape=(-1,), symbols=(symbol,))
            for name, datatype, symbol in INPUTS
        ),
    )  # fmt: skip

    whole = reassembled(plan, open_model(dense))

    axes = {
        "ids": InputAxis("ids", "offsets"),
        "factors": InputAxis("ids", "offsets"),
        "offsets": InputAxis("bag"),
    }
    assert "one by one" in prove_rows(whole, axes).reason
    batch = ExampleInputs(read_signature(whole), whole, axes).batch(64, np.random.default_rng(1))
    assert set(batch["ids"].tolist()) == set(range(6))  # 3 is added to find the row


def test_graphs_that_take_what_nothing_gives_are_refused() -> None:
    source = user_side()
    optimized = optimize(source, OptimizeOptions(min_table_bytes=0))
    plan = plan_of(optimized, read_signature(source).inputs, {})

    with pytest.raises(InvalidInput, match="takes 'price', which nothing gives"):
        reassembled(
            structs.replace(plan, inputs=tuple(one for one in plan.inputs if one.name != "price")),
            loaded(optimized.dense),
        )
    with pytest.raises(InvalidInput, match="no lookup fills some columns of 'ab_rows'"):
        reassembled(structs.replace(plan, lookups=plan.lookups[1:]), loaded(optimized.dense))


def user_side() -> bytes:
    rng = np.random.default_rng(5)
    numbers = [", ".join(f"{n:.3f}" for n in rng.random(count)) for count in (400, 64, 10)]
    text = f'<ir_version: 8, opset_import: ["" : 17]>{USER_SIDE % tuple(numbers)}'
    return parser.parse_model(text).SerializeToString()


def put_together(optimized: Optimized, signature: Signature) -> ir.Model:
    plan = plan_of(optimized, signature.inputs, signature.symbols)
    prelude = None if optimized.prelude is None else loaded(optimized.prelude)
    user = None if optimized.user is None else loaded(optimized.user)
    return reassembled(plan, loaded(optimized.dense), prelude, user)


def plan_of(
    optimized: Optimized,
    inputs: Sequence[TensorSpec],
    symbols: Mapping[str, tuple[str | None, ...]],
) -> Plan:
    return Plan(
        format=1,
        source=Source(file="model.onnx", sha256="0" * 64),
        structure_hash=optimized.structure_hash,
        graphs=Graphs(
            dense="dense.onnx",
            prelude=None if optimized.prelude is None else "prelude.onnx",
            user=None if optimized.user is None else "user.onnx",
        ),
        tables=tuple(
            PlanTable(
                name=table.name,
                file="tables/0000.seg",
                rows=table.rows,
                dim=table.dim,
                dtype="f32",
                keys="dense_id",
                missing=Original(),
            )
            for table in optimized.tables
        ),
        buffers=optimized.buffers,
        lookups=optimized.lookups,
        pass_through=optimized.pass_through,
        weights={},
        inputs=tuple(
            PlanInput(
                name=spec.name,
                datatype=spec.datatype,
                shape=spec.shape,
                symbols=symbols.get(spec.name, (None,) * len(spec.shape)),
            )
            for spec in inputs
        ),
        user_inputs=optimized.user_inputs,
    )


def input_symbols(signature: Signature) -> dict[str, tuple[str | None, ...]]:
    return {spec.name: signature.symbols[spec.name] for spec in signature.inputs}


def loaded(model: ir.Model) -> ir.Model:
    """Return a graph as it is read back from its file."""
    return open_model(graph_bytes(model))
