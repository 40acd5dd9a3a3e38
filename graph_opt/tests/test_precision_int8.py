"""Layers in eight bits: which are rewritten, what they answer, and that rows stay apart."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.model_source import open_model
from anabranch_graph_opt.precision.activation_ranges import ActivationRange, observe
from anabranch_graph_opt.precision.dense_precision import (
    Int8Precision,
    rank_agreement,
    reduced_model,
)
from anabranch_graph_opt.precision.int8_columns import quantised_columns
from anabranch_graph_opt.precision.int8_kernels import weight_limit
from anabranch_graph_opt.row_flow import prove_rows
from anabranch_graph_opt.running import Array
from anabranch_runtime.backends.ort_runner import OrtModelRunner

RNG = np.random.default_rng(11)
WEIGHT = RNG.normal(scale=0.1, size=(64, 96)).astype(np.float32)
BIAS = RNG.normal(size=96).astype(np.float32)
NARROW = RNG.normal(size=(96, 4)).astype(np.float32)
TWO_LAYERS = """
two (float[N, 64] x) => (float[N, 4] y)
{ a = Gemm(x, w, b) h = Relu(a) s = MatMul(h, narrow) y = Sigmoid(s) }
"""


def model(text: str, opset: int = 17, **weights: NDArray[np.generic]) -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    for name, array in weights.items():
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return parsed


def two_layers() -> onnx.ModelProto:
    return model(TWO_LAYERS, w=WEIGHT, b=BIAS, narrow=NARROW)


def rows(count: int, *shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(12).normal(size=(count, *shape)).astype(np.float32)


def calibrated(source: onnx.ModelProto, inputs: Mapping[str, Array]) -> Int8Precision:
    observed = observe(source)
    answers = OrtModelRunner().run(graph_bytes(observed.model), inputs)
    return Int8Precision(observed.ranges([answers]), weight_limit(OrtModelRunner()))


def answers_of(
    source: onnx.ModelProto | bytes, inputs: Mapping[str, Array]
) -> dict[str, NDArray[np.float32]]:
    data = source if isinstance(source, bytes) else source.SerializeToString()
    answers = OrtModelRunner().run(data, inputs)
    return {name: array.astype(np.float32) for name, array in answers.items()}


def operators(source: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(source).graph.node]


FORMS = {
    "Gemm": ("y = Gemm(x, w, b)", {"w": WEIGHT, "b": BIAS}),
    "Gemm without a bias": ("y = Gemm(x, w)", {"w": WEIGHT}),
    "Gemm with factors": (
        "y = Gemm <alpha: float = 0.5, beta: float = -2.0> (x, w, b)",
        {"w": WEIGHT, "b": BIAS},
    ),
    "Gemm of a transposed weight": (
        "y = Gemm <transB: int = 1> (x, w, b)",
        {"w": np.ascontiguousarray(WEIGHT.T), "b": BIAS},
    ),
    "Gemm with a bias of its rows": (
        "y = Gemm(x, w, b)",
        {"w": WEIGHT, "b": BIAS.reshape(1, -1)},
    ),
    "MatMul": ("y = MatMul(x, w)", {"w": WEIGHT}),
    "MatMul and Add": ("p = MatMul(x, w) y = Add(p, b)", {"w": WEIGHT, "b": BIAS}),
    "MatMul by a transposed weight": (
        "t = Transpose <perm: ints = [1, 0]> (w) y = MatMul(x, t)",
        {"w": np.ascontiguousarray(WEIGHT.T)},
    ),
    "a weight of which a column is zero": (
        "y = MatMul(x, w)",
        {"w": WEIGHT * (np.arange(96) != 5).astype(np.float32)},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_layer_computes_in_int8(form: str) -> None:
    nodes, weights = FORMS[form]
    source = model(f"one (float[N, 64] x) => (float[N, 96] y) {{ {nodes} }}", **weights)
    inputs = {"x": rows(50, 64)}

    graph, layers = reduced_model(source, calibrated(source, inputs))
    reduced = graph_bytes(graph)

    assert layers == ("w",)
    assert "MatMulInteger" in operators(reduced)
    assert not {"Gemm", "MatMul"}.intersection(operators(reduced))
    assert [value.name for value in onnx.load_from_string(reduced).graph.output] == ["y"]
    expected, found = answers_of(source, inputs)["y"], answers_of(reduced, inputs)["y"]
    # Half a step of 255 in each number that is summed: 64 terms of about 3.5 * 0.1 / 127, or 63.
    np.testing.assert_allclose(found, expected, atol=0.12)
    assert np.abs(found - expected).max() > 0


def test_activations_of_several_axes_are_quantised() -> None:
    source = model(
        "steps (float[N, 5, 64] x) => (float[N, 5, 96] y) { y = MatMul(x, w) }", w=WEIGHT
    )
    inputs = {"x": rows(20, 5, 64)}

    graph, layers = reduced_model(source, calibrated(source, inputs))

    assert layers == ("w",)
    found = answers_of(graph_bytes(graph), inputs)["y"]
    np.testing.assert_allclose(found, answers_of(source, inputs)["y"], atol=0.12)


def test_small_layers_are_left_alone() -> None:
    source = two_layers()
    graph, layers = reduced_model(source, calibrated(source, {"x": rows(9, 64)}))

    assert layers == ("w",)
    assert operators(graph_bytes(graph)).count("MatMul") == 1


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ("y = MatMul(x, v)", {}),
        ("y = MatMul(x, w)", {"w": np.where(WEIGHT > 0.3, np.inf, WEIGHT)}),
        ("z = MatMul(x, w) y = MatMul(x, v)", {"w": rows(64, 15)}),
    ],
    ids=["a weight that is an input", "a weight that is not finite", "too few columns"],
)
def test_what_is_no_layer_stays(nodes: str, weights: Mapping[str, NDArray[np.float32]]) -> None:
    text = f"no (float[N, 64] x, float[64, 96] v) => (float[N, 96] y) {{ {nodes} }}"
    graph, layers = reduced_model(model(text, 17, **weights), Int8Precision(None))
    assert layers == ()
    assert "MatMul" in operators(graph_bytes(graph))


def test_an_old_operator_set_is_left_alone() -> None:
    text = "old (float[N, 64] x) => (float[N, 96] y) { y = MatMul(x, w) }"
    _, layers = reduced_model(model(text, opset=9, w=WEIGHT), Int8Precision(None))
    assert layers == ()


def test_a_layer_that_was_never_seen_stays() -> None:
    _, layers = reduced_model(two_layers(), Int8Precision({"h": ActivationRange(0.0, 1.0)}))
    assert layers == ()


def test_layers_of_one_activation_quantise_it_once() -> None:
    source = model(
        """towers (float[N, 64] x) => (float[N, 96] y, float[N, 96] z)
        { y = MatMul(x, w) z = MatMul(x, v) }""",
        w=WEIGHT,
        v=WEIGHT[::-1].copy(),
    )
    graph, layers = reduced_model(source, calibrated(source, {"x": rows(9, 64)}))
    assert layers == ("w", "v")
    assert operators(graph_bytes(graph)).count("QuantizeLinear") == 1


def test_fixed_scales_keep_rows_apart() -> None:
    source = two_layers()
    inputs = rows(40, 64)
    graph, _ = reduced_model(source, calibrated(source, {"x": inputs}))
    reduced = graph_bytes(graph)

    proof = prove_rows(open_model(reduced))
    assert proof.independent, proof.reason

    before = answers_of(reduced, {"x": inputs})["y"]
    louder = inputs.copy()
    louder[7] *= 20
    after = answers_of(reduced, {"x": louder})["y"]
    others = np.arange(40) != 7
    np.testing.assert_array_equal(after[others], before[others])
    for row in range(40):
        alone = answers_of(reduced, {"x": inputs[row : row + 1]})["y"]
        np.testing.assert_allclose(alone[0], before[row], atol=1e-6)


def test_scales_of_the_batch_couple_its_rows() -> None:
    inputs = rows(40, 64)
    graph, layers = reduced_model(two_layers(), Int8Precision(None))
    reduced = graph_bytes(graph)

    proof = prove_rows(open_model(reduced))
    assert layers == ("w",)
    assert not proof.independent
    assert "scale from the whole batch" in proof.reason

    louder = inputs.copy()
    louder[7] *= 20
    moved = answers_of(reduced, {"x": louder})["y"] - answers_of(reduced, {"x": inputs})["y"]
    assert np.abs(np.delete(moved, 7, axis=0)).max() > 1e-3


def test_numbers_beyond_what_was_seen_are_clipped() -> None:
    source = model("one (float[N, 64] x) => (float[N, 96] y) { y = MatMul(x, w) }", w=WEIGHT)
    precision = Int8Precision({"x": ActivationRange(-1.0, 1.0)})
    reduced = graph_bytes(reduced_model(source, precision)[0])
    one, nine = np.full((1, 64), 1.0, np.float32), np.full((1, 64), 9.0, np.float32)
    np.testing.assert_array_equal(
        answers_of(reduced, {"x": nine})["y"], answers_of(reduced, {"x": one})["y"]
    )


def test_onnx_runtime_makes_one_kernel_of_a_layer(tmp_path: Path) -> None:
    source = two_layers()
    graph, _ = reduced_model(source, calibrated(source, {"x": rows(9, 64)}))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(graph_bytes(graph), options, providers=["CPUExecutionProvider"])
    kept = [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]
    assert "MatMulIntegerToFloat" in kept
    assert not {"MatMulInteger", "Cast", "Mul", "Add"}.intersection(kept)


def test_ranges_hold_zero_and_every_batch() -> None:
    observed = observe(two_layers())
    runner, data = OrtModelRunner(), graph_bytes(observed.model)
    batches = [np.full((3, 64), value, np.float32) for value in (0.5, 2.0)]

    ranges = observed.ranges([runner.run(data, {"x": batch}) for batch in batches])

    assert ranges == {"x": ActivationRange(0.0, 2.0)}
    assert (ranges["x"].scale, ranges["x"].zero_point) == (2.0 / 255, 0)
    assert ActivationRange(-1.0, 1.0).zero_point == 128
    assert ActivationRange(0.0, 0.0).scale == 1.0
    assert observed.ranges([]) == {}
    not_finite = np.full((1, 64), np.nan, np.float32)
    assert observed.ranges([runner.run(data, {"x": not_finite})]) == {}


def test_other_ranges_have_another_digest() -> None:
    one = Int8Precision({"x": ActivationRange(0.0, 1.0)})
    same = Int8Precision({"x": ActivationRange(0.0, 1.0)})
    others = [
        Int8Precision({"x": ActivationRange(0.0, 1.5)}),
        Int8Precision({"y": ActivationRange(0.0, 1.0)}),
        Int8Precision({"x": ActivationRange(0.0, 1.0)}, 63),
        Int8Precision(None),
    ]
    assert one.digest == same.digest
    assert len({one.digest, *(other.digest for other in others)}) == 5


@pytest.mark.parametrize("limit", [127, 63])
def test_columns_are_within_half_a_step(limit: int) -> None:
    numbers, scales = quantised_columns(WEIGHT, 127 if limit == 127 else 63)
    assert numbers.dtype == np.int8
    assert np.abs(numbers.astype(np.int64)).max() == limit
    assert (np.abs(numbers * scales - WEIGHT) <= scales / 2 + 1e-7).all()


class SaturatingRunner:
    """A processor that adds pairs of products in 16 bits."""

    def run(
        self, model: str | os.PathLike[str] | bytes, inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        pairs = 2 * inputs["x"].astype(np.int32)[:, ::2] * 127
        sums = np.minimum(pairs, 2**15 - 1).sum(axis=1, dtype=np.int32)
        return {"y": np.repeat(sums[:, None], 32, axis=1)}


def test_a_processor_that_cuts_sums_off_gets_weights_of_seven_bits() -> None:
    assert weight_limit(SaturatingRunner()) == 63
    assert weight_limit(OrtModelRunner()) in (63, 127)


def test_agreement_counts_pairs_in_order() -> None:
    expected = np.array([[1.0], [2.0], [3.0], [3.0]])
    assert rank_agreement(expected, expected * 2) == 1.0
    assert rank_agreement(expected, -expected) == 0.0
    swapped = np.array([[2.0], [1.0], [3.0], [3.5]])
    assert rank_agreement(expected, swapped) == pytest.approx(4 / 5)
    assert rank_agreement(expected[:1], expected[:1]) == 1.0
