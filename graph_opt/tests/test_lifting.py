"""Weights as inputs: the same answers, and the same structure for other weights alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.lifting import LiftedGraph, lift_weights
from anabranch_graph_opt.model_source import open_model
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_testing.graphs import write_graph

MODELS = corpus_models() or tree_models()

Arrays = Mapping[str, NDArray[Any]]

MLP = """
mlp (float[N, 3] x) => (float[N, 1] y)
<float[3, 2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, float[2] b = {0.5, -0.5},
 float low = {0.0}, float high = {9.0}, int64[1] axes = {1}>
{ h = MatMul(x, w)  s = Add(h, b)  c = Clip(s, low, high)  y = ReduceSum(c, axes) }
"""


def run(lifted: LiftedGraph, inputs: Arrays) -> Arrays:
    given = {str(one.name): one.numpy() for one in lifted.weights}
    return OrtModelRunner().run(graph_bytes(lifted.model), {**inputs, **given})


def graph(tmp_path: Path, text: str = MLP) -> ir.Model:
    return open_model(write_graph(tmp_path, text))


def test_what_a_kernel_reads_on_the_device_is_lifted_and_nothing_else(tmp_path: Path) -> None:
    model = graph(tmp_path)
    lifted = lift_weights(model)

    assert [one.name for one in lifted.weights] == ["w", "b"]
    assert [value.name for value in lifted.model.graph.inputs] == ["x", "w", "b"]
    assert set(lifted.model.graph.initializers) == {"low", "high", "axes"}
    assert set(model.graph.initializers) == {"w", "b", "low", "high", "axes"}  # as it was
    x = np.array([[1, 0, 0], [0, 1, 1]], np.float32)
    assert run(lifted, {"x": x})["y"].tolist() == [[3.0], [17.5]]


def test_other_weights_have_the_same_structure(tmp_path: Path) -> None:
    one = lift_weights(graph(tmp_path / "a"))
    other = lift_weights(graph(tmp_path / "b", MLP.replace("1.0, 2.0", "7.0, 8.0")))

    assert one.structure == other.structure
    assert one.weights[0].tobytes() != other.weights[0].tobytes()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("high = {9.0}", "high = {8.0}"),
        ("axes = {1}", "axes = {0}"),
        ("Add(h, b)", "Sub(h, b)"),
        ("float[N, 3] x", "float[M, 3] z"),
    ],
)
def test_whatever_else_differs_is_another_structure(
    tmp_path: Path, before: str, after: str
) -> None:
    text = MLP.replace(before, after)
    if "z" in after:
        text = text.replace("MatMul(x", "MatMul(z")
    one, other = graph(tmp_path / "a"), graph(tmp_path / "b", text)

    assert lift_weights(one).structure != lift_weights(other).structure


def test_a_weight_that_is_also_read_on_the_host_stays(tmp_path: Path) -> None:
    text = """
    g (float[N] x) => (float[N] y) <float low = {0.25}>
    { c = Clip(x, low)  y = Add(c, low) }
    """
    lifted = lift_weights(graph(tmp_path, text))

    assert lifted.weights == ()
    assert run(lifted, {"x": np.array([0.0, 1.0], np.float32)})["y"].tolist() == [0.5, 1.25]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_real_models_answer_the_same(model: CorpusModel) -> None:
    lifted = lift_weights(open_model(model.folder / "model.onnx"))

    assert not {one.name for one in lifted.weights} & set(lifted.model.graph.initializers)
    inputs, expected = model.batches()[0], model.expected()[0]
    found = run(lifted, inputs)
    for name, array in expected.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[name], array, rtol=2e-4, atol=2e-5)
        else:
            np.testing.assert_array_equal(found[name], array)
