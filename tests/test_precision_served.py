"""Models with fewer bits behind a started server: near the original, and rows stay apart."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tritonclient import http

from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.triton_clients import retire_http_client

BUDGET = 0.02
MLP = """
mlp (float[N, 64] x) => (float[N, 1] score)
{ h = Gemm(x, w, b) a = Relu(h) s = MatMul(a, v) score = Sigmoid(s) }
"""
RANK = """
rank (int64[N] item, float[N, 48] x) => (float[N, 1] score)
{
  i = Gather(items, item) all = Concat <axis: int = 1> (x, i)
  h = Gemm(all, w, b) a = Relu(h) s = MatMul(a, v) score = Sigmoid(s)
}
"""
INT8 = f"optimize: {{dense: int8, min_table_bytes: 0, parity: {{max_abs_diff: {BUDGET}}}}}\n"
MODELS = {
    "mlp": (MLP, INT8),
    "coupled": (MLP, INT8.replace("int8", "int8_dynamic")),
    "rank": (RANK, f"tables: {{items: {{rows: f16}}}}\n{INT8}"),
}

Batch = dict[str, NDArray[Any]]


def write(repository: Path, name: str) -> None:
    graph, yaml = MODELS[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    rng = np.random.default_rng(1)
    shapes = {"w": (64, 128), "b": (128,), "v": (128, 1)} | (
        {"items": (300, 16)} if name == "rank" else {}
    )
    for weight, shape in shapes.items():
        array = rng.normal(scale=0.2, size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, weight))
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "model.yaml").write_text(yaml)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for name in MODELS:
        write(folder, name)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with started_server(repository, tmp_path_factory.mktemp("s"), "--settle-s", "0") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[http.InferenceServerClient]:
    client = http.InferenceServerClient(server.http)
    yield client
    retire_http_client(client)


def batch(model: str, rows: int = 40) -> Batch:
    rng = np.random.default_rng(2)
    if model == "rank":
        return {"item": rng.integers(0, 300, rows), "x": rng.random((rows, 48), np.float32)}
    return {"x": rng.random((rows, 64), np.float32)}


def score(client: http.InferenceServerClient, model: str, inputs: Batch) -> NDArray[np.float32]:
    tensors = []
    for name, array in inputs.items():
        tensor = http.InferInput(name, list(array.shape), "INT64" if name == "item" else "FP32")
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    answer = client.infer(model, tensors).as_numpy("score")
    assert answer is not None
    return np.asarray(answer, np.float32)


@pytest.mark.parametrize("model", MODELS)
def test_answers_are_near_those_of_the_original(
    client: http.InferenceServerClient, repository: Path, model: str
) -> None:
    inputs = batch(model)
    original = OrtModelRunner().run(repository / model / "1" / "model.onnx", inputs)["score"]
    off = np.abs(score(client, model, inputs) - original.astype(np.float32)).max()
    assert 0 < off <= BUDGET


@pytest.mark.parametrize("model", ["mlp", "rank"])
def test_a_row_is_what_it_is_alone_whatever_comes_with_it(
    client: http.InferenceServerClient, model: str
) -> None:
    inputs = batch(model)
    together = score(client, model, inputs)
    inputs["x"][7] *= 20
    beside = score(client, model, inputs)
    others = np.arange(len(together)) != 7
    np.testing.assert_array_equal(beside[others], together[others])
    for row in (0, 20):
        alone = score(client, model, {name: array[[row]] for name, array in inputs.items()})
        np.testing.assert_allclose(alone[0], together[row], atol=1e-6)


def test_scales_of_the_batch_are_told_to_the_operator(server: RunningServer) -> None:
    notes = [line for line in server.log.read_text().splitlines() if "neither merged" in line]
    assert any("coupled" in line and "scale from the whole batch" in line for line in notes)
    assert not any('"mlp"' in line or '"rank"' in line for line in notes)


def test_workers_share_the_graph_that_was_written_for_them(server: RunningServer) -> None:
    assert "workers build it from the repository" not in server.log.read_text()


def test_what_fewer_bits_cost_is_told_to_the_operator(server: RunningServer) -> None:
    lines = [line for line in server.log.read_text().splitlines() if "keep their order" in line]
    assert len(lines) == len(MODELS)
    assert any("rows of items are kept with fewer bits" in line for line in lines)
    with urllib.request.urlopen(f"http://{server.admin}/admin/v1/models/mlp", timeout=20) as answer:
        (version,) = json.load(answer)["versions"]
    assert 0 < version["split"]["max_abs_diff"] <= BUDGET
