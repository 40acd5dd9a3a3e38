"""Originals without their tables: the same numbers and the same refusals, a row at a time."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.external_data_helper import convert_model_to_external_data

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.model_source import open_model
from anabranch_graph_opt.parity.sliced_originals import SlicedRunner, sliced_runner
from anabranch_graph_opt.running import Array
from anabranch_graph_opt.signature import read_signature
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_wire.errors import AnabranchError, InvalidInput, Unavailable

MODELS = corpus_models() or tree_models()

GRAPH = """
rank (int64[N] item, int32[N, 2] place, float[N, 3] x) => (float[N, 3] i, float[N, 2, 3] b)
<int64 shift = {2}>
{
  i = Gather(items, item)
  moved = Cast <to: int = 7> (place)
  later = Add(moved, shift)
  one = Gather(items, later)
  two = Gather(places, place)
  b = Add(one, two)
}
"""
ROWS = 50


class Watching(OrtModelRunner):
    """Notes what it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[object] = []

    def run(
        self, model: str | os.PathLike[str] | bytes, inputs: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, NDArray[np.generic]]:
        self.ran.append(model)
        return super().run(model, inputs)


def written(folder: Path, graph: str = GRAPH, *, external: bool = False) -> Path:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    rng = np.random.default_rng(2)
    for name in ("items", "places"):
        array = np.asarray(rng.standard_normal((ROWS, 3)), np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    if external:
        convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def inputs(items: list[int], places: list[list[int]]) -> dict[str, Array]:
    return {
        "item": np.array(items, np.int64),
        "place": np.array(places, np.int32).reshape(-1, 2),
        "x": np.zeros((len(items), 3), np.float32),
    }


def slicing(path: Path, whole: OrtModelRunner, min_bytes: int = 0) -> SlicedRunner:
    others = (OrtModelRunner(), OrtModelRunner())
    made = sliced_runner(open_model(path), path, whole, others, min_bytes)
    assert isinstance(made, SlicedRunner)
    return made


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize(
    "batch",
    [
        inputs([1, 7, 7, ROWS - 1], [[0, 1], [3, 3], [-1, 5], [ROWS - 3, 0]]),
        inputs([-1, -ROWS], [[-ROWS, 0], [1, -ROWS + 1]]),
        inputs([], []),
    ],
)
def test_answers_are_those_of_the_whole(
    tmp_path: Path, batch: dict[str, Array], external: bool
) -> None:
    path = written(tmp_path, external=external)
    watching = Watching()

    found = slicing(path, watching).run(path, batch)

    assert watching.ran == []
    expected = OrtModelRunner().run(path, batch)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    "batch",
    [
        inputs([ROWS], [[0, 0]]),
        inputs([-ROWS - 1], [[0, 0]]),
        inputs([0], [[ROWS - 2, 0]]),  # one lookup of it is moved by two
        inputs([0], [[0, -ROWS - 1]]),
    ],
)
def test_what_the_whole_refuses_is_refused(tmp_path: Path, batch: dict[str, Array]) -> None:
    path = written(tmp_path)
    with pytest.raises(AnabranchError):
        OrtModelRunner().run(path, batch)

    with pytest.raises(InvalidInput, match=r"is outside of table '(items|places)' with 50 rows"):
        slicing(path, OrtModelRunner()).run(path, batch)


def test_other_models_run_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    path, other = written(tmp_path), written(tmp_path / "other")
    watching = Watching()
    batch = inputs([1], [[0, 0]])

    made = slicing(path, watching)
    made.run(other, batch)
    made.run(other.read_bytes(), batch)

    assert len(watching.ran) == 2


TRANSPOSED = GRAPH.replace("i = Gather(items, item)", "t = Transpose(items)\n i = MatMul(x, t)")
CHAINED = """
chained (int64[N] item) => (float[N, 3] i)
{
  first = Gather(items, item)
  sizes = Shape(first)
  zeros = ConstantOfShape(sizes)
  column = ReduceMax <axes = [1], keepdims = 0> (zeros)
  again = Cast <to: int = 7> (column)
  second = Add(item, again)
  i = Gather(places, second)
}
"""


@pytest.mark.parametrize(
    ("graph", "min_bytes"),
    [(GRAPH, 10**6), (CHAINED, 0)],
    ids=["small tables", "numbers that need rows"],
)
def test_what_cannot_be_sliced_runs_whole(tmp_path: Path, graph: str, min_bytes: int) -> None:
    path = written(tmp_path, graph)
    whole = OrtModelRunner()
    others = (OrtModelRunner(), OrtModelRunner())

    assert sliced_runner(open_model(path), path, whole, others, min_bytes) is whole


def test_a_table_with_other_uses_stays_beside_one_that_is_sliced(tmp_path: Path) -> None:
    path = written(tmp_path, TRANSPOSED.replace("float[N, 3] i", "float[N, 50] i"))
    batch = inputs([0, 0], [[1, 2], [4, 5]]) | {"x": np.ones((2, 3), np.float32)}

    found = slicing(path, OrtModelRunner()).run(path, batch)

    for name, array in OrtModelRunner().run(path, batch).items():
        np.testing.assert_array_equal(found[name], array)


def test_the_model_that_was_given_is_not_changed(tmp_path: Path) -> None:
    path = written(tmp_path)
    model = open_model(path)

    sliced_runner(model, path, OrtModelRunner(), (OrtModelRunner(), OrtModelRunner()), 0)

    assert set(model.graph.initializers) == {"items", "places", "shift"}
    assert [value.name for value in model.graph.inputs] == ["item", "place", "x"]


def test_a_file_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, external=True)
    made = slicing(path, OrtModelRunner())
    weights = tmp_path / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:100])

    with pytest.raises(Unavailable, match="its file was cut off"):
        made.run(path, inputs([ROWS - 1], [[0, 0]]))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_real_models_answer_the_same(model: CorpusModel) -> None:
    path = model.folder / "model.onnx"
    opened = open_model(path)
    whole = OrtModelRunner()
    made = sliced_runner(opened, path, whole, (OrtModelRunner(), OrtModelRunner()), 0)
    source = ExampleInputs(read_signature(opened), opened)
    batches = [*model.batches(), source.batch(4, np.random.default_rng(5))]

    for batch in batches:
        found, expected = made.run(path, batch), whole.run(path, batch)
        for name, array in expected.items():
            # Other operators are fused where rows come in: sums are taken in another order.
            one, two = found[name].astype(np.float64), array.astype(np.float64)
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)
