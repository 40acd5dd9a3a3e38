"""Versions that were optimised ahead of time, through a really started server."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.http as triton_http
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_testing.corpus import CorpusModel, tree_models
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.triton_clients import retire_http_client
from anabranch_wire.tensors import datatype_of

Batch = dict[str, NDArray[Any]]

TOLERANCE = 1e-5  # absolute, float32: what the corpus itself promises

# A history as rows of a table, a bag with weights, and a graph that fails with a single row.
NAMES = ("deepctr_torch_din_ts17", "own_bag_weighted_ts17", "torch_rechub_dcnv2_dynamo18")
MODELS = {model.name: model for model in tree_models() if model.name in NAMES}
SERVING = "format: 1\nbatching: {max_rows: 16, split_rows: 2}\nwarmup: {rounds: 1}\n"
LENGTH, DIM, WIDE, USERS, ITEMS = 32, 16, 256, 40, 500


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    for model in MODELS.values():
        optimize(model.folder / "model.onnx", root / model.name / "1", "--min-table-bytes", "0")
    exported = tmp_path_factory.mktemp("exported")
    onnx.save(encoder(), exported / "model.onnx")
    (exported / "model.yaml").write_text("user_inputs: [hist]\n")
    optimize(
        exported / "model.onnx", root / "encoder" / "1", "--config", str(exported / "model.yaml"),
        "--min-table-bytes", "0", "--keep-original",
    )  # fmt: skip
    for folder in root.iterdir():
        (folder / "serving.yaml").write_text(SERVING)
    return root


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with started_server(repository, tmp_path_factory.mktemp("scratch")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Any]:
    client = triton_http.InferenceServerClient(server.http, concurrency=8)
    yield client
    retire_http_client(client)


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest) -> CorpusModel:
    return MODELS[request.param]


def test_scores_are_those_of_the_original(model: CorpusModel, client: Any) -> None:
    for batch, expected in zip(model.batches(), model.expected(), strict=True):
        handle = send(client, model.name, batch)
        assert_close(answer(handle, expected), expected)


def test_rows_of_many_requests_are_merged_and_stay_apart(model: CorpusModel, client: Any) -> None:
    (batch, _), (expected, _) = model.batches(), model.expected()
    count = len(next(iter(batch.values())))

    config = client.get_model_config(model.name)
    handles = [send(client, model.name, row_of(batch, row)) for row in range(count)]

    assert config["rows"]["independent"] is True, config["rows"]["reason"]
    for row, handle in enumerate(handles):
        assert_close(answer(handle, expected), row_of(expected, row))


def test_metadata_shows_the_inputs_of_the_original(model: CorpusModel, client: Any) -> None:
    batch, expected = model.batches()[0], model.expected()[0]

    shown = client.get_model_metadata(model.name)

    assert {one["name"]: one["datatype"] for one in shown["inputs"]} == {
        name: datatype_of(array.dtype) for name, array in batch.items()
    }
    assert all(one["shape"][0] == -1 for one in shown["inputs"])
    assert {one["name"] for one in shown["outputs"]} == set(expected)


def test_users_are_computed_once_and_each_gets_its_own_scores(
    repository: Path, client: Any
) -> None:
    assert (repository / "encoder" / "1" / "user.onnx").is_file()
    rng = np.random.default_rng(11)
    requests = []
    for rows in (1, 5, 3, 16, 2):
        hist = rng.integers(0, USERS, (1, LENGTH))
        requests.append({"hist": hist, "item": rng.integers(0, ITEMS, (rows, 1))})

    handles = [send(client, "encoder", request) for request in requests]

    runner = OrtModelRunner()
    for request, handle in zip(requests, handles, strict=True):
        rows = len(request["item"])
        whole = {"item": request["item"], "hist": np.repeat(request["hist"], rows, axis=0)}
        expected = runner.run(repository / "encoder" / "1" / "model.onnx", whole)
        assert_close(answer(handle, expected), expected)
        by_row = send(client, "encoder", whole)
        assert_close(answer(by_row, expected), expected)


def test_ids_outside_of_their_table_are_refused_and_others_go_on(client: Any) -> None:
    good = {"hist": np.zeros((1, LENGTH), np.int64), "item": np.zeros((2, 1), np.int64)}
    bad = {**good, "item": np.array([[0], [ITEMS]])}

    refused = send(client, "encoder", bad)

    with pytest.raises(Exception, match=str(ITEMS)):
        refused.get_result()
    assert answer(send(client, "encoder", good), {"y": np.zeros(0)})["y"].shape == (2, 1)


def test_status_says_what_was_cut(server: RunningServer) -> None:
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()

    found = [one for one in lines if one.startswith("anabranch_optimized_lookups{")]
    own = [one for one in found if 'model="encoder"' in one]
    counts = {'where="cut"' in one: float(one.rpartition(" ")[2]) for one in own}
    assert counts == {True: 2, False: 0}


def optimize(model: Path, folder: Path, *options: str) -> None:
    """Run the command as a user does, and check what it says."""
    command = [sys.executable, "-m", "anabranch_server", "optimize", str(model), "-o", str(folder)]
    done = subprocess.run(
        [*command, *options, "--json"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["parity"]["cases"] > 0
    assert report["parity"]["max_abs_diff"] <= TOLERANCE
    assert all(lookup["cut"] for lookup in report["lookups"])


def encoder() -> onnx.ModelProto:
    """A history that costs much and is the user's, and items that cost little."""
    rng = np.random.default_rng(5)
    shapes = {
        "words": (USERS, DIM), "items": (ITEMS, DIM), "up": (DIM, WIDE), "down": (WIDE, DIM),
    }  # fmt: skip
    weights = {name: rng.normal(0, 0.2, shape).astype("<f4") for name, shape in shapes.items()}
    constants = {"axis": np.array([1]), "flat": np.array([0, DIM])}
    nodes = [
        helper.make_node("Gather", ["words", "hist"], ["read"]),
        helper.make_node("MatMul", ["read", "up"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["active"]),
        helper.make_node("MatMul", ["active", "down"], ["narrow"]),
        helper.make_node("ReduceSum", ["narrow", "axis"], ["user"], keepdims=0),
        helper.make_node("Gather", ["items", "item"], ["found"]),
        helper.make_node("Reshape", ["found", "flat"], ["candidate"]),
        helper.make_node("Mul", ["user", "candidate"], ["product"]),
        helper.make_node("ReduceSum", ["product", "axis"], ["y"], keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [
            helper.make_tensor_value_info("hist", TensorProto.INT64, ["N", LENGTH]),
            helper.make_tensor_value_info("item", TensorProto.INT64, ["N", 1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])],
        [numpy_helper.from_array(a, name) for name, a in {**weights, **constants}.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def send(client: Any, model: str, batch: Batch) -> Any:
    inputs = []
    for name, array in batch.items():
        tensor = triton_http.InferInput(name, list(array.shape), datatype_of(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return client.async_infer(model, inputs)


def answer(handle: Any, like: Batch) -> Batch:
    found = handle.get_result()
    return {name: found.as_numpy(name) for name in like}


def row_of(batch: Batch, row: int) -> Batch:
    return {name: array[row : row + 1] for name, array in batch.items()}


def assert_close(found: Batch, expected: Batch) -> None:
    for name, array in expected.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=0, atol=TOLERANCE, err_msg=name)
