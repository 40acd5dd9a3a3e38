"""Lookups leave a graph whose layers compute in int8; what cannot be updated is not promised."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.optimize_options import OptimizeOptions
from anabranch_graph_opt.optimizer import optimize
from anabranch_graph_opt.parity.reference_lookups import look_up
from anabranch_graph_opt.precision.activation_ranges import observe
from anabranch_graph_opt.precision.dense_precision import Int8Precision
from anabranch_graph_opt.precision.int8_kernels import weight_limit
from anabranch_graph_opt.running import Array
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.weight_targets import ToDense, ToTable

F32 = OptimizeOptions(min_table_bytes=0)
INT8 = OptimizeOptions(min_table_bytes=0, dense="int8")
RNG = np.random.default_rng(3)
TABLE = RNG.normal(size=(200, 32)).astype(np.float32)
WEIGHT = RNG.normal(scale=0.1, size=(32, 160)).astype(np.float32)
BIAS = RNG.normal(size=160).astype(np.float32)
TOWER = """
tower (int64[N] id) => (float[N, 160] y) { e = Gather(table, id) y = Gemm(e, w, b) }
"""
IDS = np.arange(50, dtype=np.int64)


def model(text: str, **weights: NDArray[np.generic]) -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    for name, array in weights.items():
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return parsed


def tower() -> onnx.ModelProto:
    return model(TOWER, table=TABLE, w=WEIGHT, b=BIAS)


def calibrated(source: onnx.ModelProto) -> Int8Precision:
    observed = observe(source)
    runner = OrtModelRunner()
    answers = runner.run(graph_bytes(observed.model), {"id": IDS})
    return Int8Precision(observed.ranges([answers]), weight_limit(runner))


def scores(data: bytes, inputs: Mapping[str, Array]) -> NDArray[np.float32]:
    return OrtModelRunner().run(data, inputs)["y"].astype(np.float32)


def test_the_table_leaves_and_the_layer_computes_in_int8() -> None:
    source = tower()
    optimized = optimize(source, INT8, calibrated(source))

    assert [table.name for table in optimized.tables] == ["table"]
    assert optimized.reduced_layers == 1
    rows = look_up(optimized, {"id": IDS}, len(IDS))
    found = scores(graph_bytes(optimized.dense), rows)
    expected = scores(source.SerializeToString(), {"id": IDS})
    np.testing.assert_allclose(found, expected, atol=0.1)
    assert np.abs(found - expected).max() > 0


def test_weights_of_eight_bits_cannot_be_updated_others_can() -> None:
    source = tower()
    optimized = optimize(source, INT8, calibrated(source))
    assert dict(optimized.weights) == {
        "table": (ToTable(index=0),),
        "b": (ToDense(name="b", transform="none"),),
    }
    assert set(optimize(source, F32).weights) == {"table", "w", "b"}


def test_what_is_tied_to_a_weight_of_eight_bits_cannot_be_updated_either() -> None:
    text = """
    tied (int64[N] id) => (float[N, 200] y) { e = Gather(table, id) y = MatMul(e, val_7) }
    """
    source = model(text, table=TABLE, val_7=np.ascontiguousarray(TABLE.T))
    optimized = optimize(source, INT8, calibrated(source))
    assert [table.name for table in optimized.tables] == ["table"]
    assert optimized.reduced_layers == 1
    assert dict(optimized.weights) == {}
    assert set(optimize(source, F32).weights) == {"table", "val_7"}


def test_a_table_that_is_a_layer_too_cannot_be_updated() -> None:
    text = """
    scores (int64[N] id) => (float[N, 200] y)
    { e = Gather(table, id) y = Gemm <transB: int = 1> (e, table) }
    """
    source = model(text, table=TABLE)
    optimized = optimize(source, INT8, calibrated(source))
    assert optimized.reduced_layers == 1
    assert dict(optimized.weights) == {}


def test_precision_is_part_of_the_structure() -> None:
    source = tower()
    precision = calibrated(source)
    int8 = optimize(source, INT8, precision).structure_hash
    assert int8 != optimize(source, F32).structure_hash
    other = model(TOWER, table=TABLE + 1, w=WEIGHT * 2, b=BIAS)
    assert optimize(other, INT8, calibrated(other)).structure_hash == int8


@pytest.mark.parametrize(
    ("options", "precision"), [(INT8, None), (F32, Int8Precision(None))], ids=["none", "too much"]
)
def test_int8_needs_to_know_its_activations(
    options: OptimizeOptions, precision: Int8Precision | None
) -> None:
    with pytest.raises(ValueError, match="precision"):
        optimize(tower(), options, precision)


def test_nothing_of_the_source_is_changed() -> None:
    source = tower()
    before = source.SerializeToString()
    optimize(source, INT8, calibrated(source))
    assert source.SerializeToString() == before
