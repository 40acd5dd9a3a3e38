"""An optimised graph answers as the original does, and is what a backend builds from."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.backends.ort_optimized import WEIGHTS_FILE, write_optimized
from anabranch_runtime.models import DenseModel
from anabranch_testing.graphs import scale_model
from anabranch_wire.errors import InvalidInput, Unavailable


def _answer(model: DenseModel) -> np.ndarray:
    engine = OrtCpuBackend().build(model)
    binding = engine.bind()
    stage = binding.stage(((3, 4),))
    stage.inputs[0][...] = np.arange(12, dtype=np.float32).reshape(3, 4)
    stage.enqueue()
    answer = stage.outputs()[0].copy()
    binding.close()
    engine.close()
    return answer


def test_answers_are_the_originals_to_the_last_bit(tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    folder = tmp_path / "built"
    folder.mkdir()

    path = write_optimized(model.path, folder)

    expected = _answer(model)
    model.path.unlink()  # nothing of the original is needed any more
    np.testing.assert_array_equal(_answer(replace(model, path=path, optimized=True)), expected)
    assert {file.name for file in folder.iterdir()} <= {"model.onnx", WEIGHTS_FILE}


def test_a_library_that_writes_nothing_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = scale_model(tmp_path)
    graph = onnx.load(model.path)
    graph.metadata_props.add(key="ort_config", value='{"session_options": {}}')
    onnx.save(graph, model.path)
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    (tmp_path / "built").mkdir()

    with pytest.raises(Unavailable, match="wrote no optimised graph"):
        write_optimized(model.path, tmp_path / "built")


def test_a_graph_that_cannot_be_built_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "model.onnx"
    broken.write_bytes(b"not a graph")

    with pytest.raises(InvalidInput, match="cannot build"):
        write_optimized(broken, tmp_path)
