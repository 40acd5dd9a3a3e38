import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data

from anabranch_model_store.version_contents import check_unpublished
from anabranch_testing.graphs import scale_model
from anabranch_wire.errors import AnabranchError, InvalidInput, NotFound

README = "# A model\n\nIt was trained, *somehow*: see [notes].\n"
ROWS = np.ones((2, 4), np.float32)


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """A folder of files that fit together."""
    folder = tmp_path / "ctr" / ".publishing"
    scale_model(folder)
    (folder / "model.yaml").write_text("{user_inputs: [x], outputs: {y: {kind: logit}}}")
    (folder / "warmup").mkdir()
    np.savez(folder / "warmup" / "a.npz", **{"x": ROWS, "expected.y": ROWS[:, :1]})  # type: ignore[arg-type]  # of many types
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    (folder / "warmup" / "b.json").write_text(json.dumps({"inputs": [tensor]}))
    return folder


def test_files_that_fit_together_may_be_published(staged: Path) -> None:
    check_unpublished(staged, staged.parent)


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("model.onnx", README, "model.onnx: no ONNX model"),
        ("model.onnx", "", "model.onnx: no ONNX model: it holds no graph"),
        ("model.yaml", README, "model.yaml: line 3: It was trained, *somehow*: unknown key"),
        ("model.yaml", "user_input: [x]", "unknown key, did you mean 'user_inputs'?"),
        ("model.yaml", "user_inputs: [user]", "the graph has no input 'user'; it has 'x'"),
        ("model.yaml", "outputs: {z: {kind: logit}}", "the graph has no output 'z'"),
        ("warmup/a.npz", README, "warmup/a.npz: no .npz file"),
        ("warmup/b.json", README, "warmup/b.json: no request in JSON"),
    ],
)
def test_a_file_that_is_no_such_thing_is_refused(
    staged: Path, path: str, text: str, said: str
) -> None:
    (staged / path).write_text(text)

    with pytest.raises(InvalidInput) as caught:
        check_unpublished(staged, staged.parent)

    assert said in caught.value.message


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"z": ROWS}, "warmup/a.npz: 'z'"),
        ({"x": ROWS.astype(np.float64)}, "found elements of float64; expected float32 (FP32)"),
        ({"x": ROWS[:, :3]}, "found shape [2, 3]; expected [-1, 4] (-1 = any)"),
        ({"x": ROWS, "expected.y": ROWS}, "found shape [2, 4]; expected [-1, 1]"),
        ({}, "input 'x' is missing"),
    ],
)
def test_samples_of_another_model_are_refused(
    staged: Path, arrays: dict[str, np.ndarray], said: str
) -> None:
    np.savez(staged / "warmup" / "a.npz", **arrays)  # type: ignore[arg-type]  # of many types

    with pytest.raises(InvalidInput) as caught:
        check_unpublished(staged, staged.parent)

    assert said in caught.value.message


def test_weights_left_behind_are_named(staged: Path) -> None:
    model = onnx.load(staged / "model.onnx")
    weights = onnx.helper.make_tensor("w2", onnx.TensorProto.FLOAT, [1], b"\0\0\0\0", raw=True)
    set_external_data(weights, "weights.bin")
    weights.data_location = onnx.TensorProto.EXTERNAL
    model.graph.initializer.append(weights)
    (staged / "model.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(InvalidInput, match=r"external data of 'w2': weights\.bin: missing"):
        check_unpublished(staged, staged.parent)


def test_a_graph_is_needed(staged: Path) -> None:
    (staged / "model.onnx").rename(staged / "click.onnx")

    with pytest.raises(NotFound, match=r"no model\.onnx; found click\.onnx"):
        check_unpublished(staged, staged.parent)


def test_the_models_own_meaning_counts_where_the_version_has_none(staged: Path) -> None:
    (staged / "model.yaml").rename(staged.parent / "model.yaml")
    check_unpublished(staged, staged.parent)

    (staged.parent / "model.yaml").write_text("user_inputs: [user]")
    with pytest.raises(AnabranchError, match="no input 'user'"):
        check_unpublished(staged, staged.parent)
