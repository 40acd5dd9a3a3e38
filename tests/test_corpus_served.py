"""Every real model through a really started server, by the client that users have."""

import shutil
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from numpy.typing import NDArray

from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_testing.lengths import is_soak
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.triton_clients import retire_http_client
from anabranch_wire.tensors import datatype_of

HttpClient: TypeAlias = Any  # tritonclient has no types
GrpcClient: TypeAlias = Any
Batch = dict[str, NDArray[Any]]

TOLERANCE = 1e-5  # absolute, float32: what the corpus itself promises

# Rows of these are independent, only a single row fails in the graph: the server pads it.
PADDED = ("deepctr_torch_dcnmix_", "torch_rechub_dcnv2_")

MODELS = {model.name: model for model in (*tree_models(), *corpus_models())}

SERVING = """\
format: 1
executors: {per_worker: 2}
batching: {max_rows: 16, split_rows: 2}
warmup: {rounds: 1}
"""


CUTTING = {"tables from 64 KiB on cut": "", "all tables cut": "optimize: {min_table_bytes: 0}\n"}
MIXED = "every fourth model as by default, all tables of the others cut"

pytestmark = pytest.mark.soak


def meaning_of(number: int, cutting: str) -> str:
    """Return the model.yaml of a model."""
    return list(CUTTING.values())[number % 4 != 0] if cutting == MIXED else CUTTING[cutting]


@pytest.fixture(scope="module", params=CUTTING if is_soak() else [MIXED])
def cutting(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(cutting: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    for number, model in enumerate(MODELS.values()):
        version = repository / model.name / "1"
        version.mkdir(parents=True)
        shutil.copyfile(model.folder / "model.onnx", version / "model.onnx")
        (repository / model.name / "serving.yaml").write_text(SERVING)
        (repository / model.name / "model.yaml").write_text(meaning_of(number, cutting))
    scratch = tmp_path_factory.mktemp("scratch")
    with started_server(repository, scratch, "--settle-s", "0") as running:
        yield running


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[HttpClient]:
    client = triton_http.InferenceServerClient(server.http, concurrency=8)
    yield client
    retire_http_client(client)


@pytest.fixture(scope="module")
def grpc(server: RunningServer) -> Iterator[GrpcClient]:
    client = triton_grpc.InferenceServerClient(server.grpc)
    yield client
    client.close()


def http_arguments(batch: Batch, outputs: list[str], binary: bool) -> tuple[list[Any], ...]:
    """Inputs and requested outputs, as tritonclient wants them."""
    inputs = []
    for name, array in batch.items():
        tensor = triton_http.InferInput(name, list(array.shape), datatype_of(array.dtype))
        tensor.set_data_from_numpy(array, binary_data=binary)
        inputs.append(tensor)
    return inputs, [triton_http.InferRequestedOutput(name, binary_data=binary) for name in outputs]


def by_http(
    client: HttpClient, model: str, batch: Batch, outputs: list[str], binary: bool
) -> Batch:
    inputs, wanted = http_arguments(batch, outputs, binary)
    answer = client.infer(model, inputs, outputs=wanted)
    return {name: answer.as_numpy(name) for name in outputs}


def send(client: HttpClient, model: str, batch: Batch, outputs: list[str]) -> Any:
    inputs, wanted = http_arguments(batch, outputs, True)
    return client.async_infer(model, inputs, outputs=wanted)


def by_grpc(client: GrpcClient, model: str, batch: Batch, outputs: list[str]) -> Batch:
    inputs = []
    for name, array in batch.items():
        tensor = triton_grpc.InferInput(name, list(array.shape), datatype_of(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    answer = client.infer(model, inputs)
    return {name: answer.as_numpy(name) for name in outputs}


def assert_close(found: Batch, expected: Batch, where: str) -> None:
    for name, array in expected.items():
        assert found[name].shape == array.shape, where
        np.testing.assert_allclose(found[name], array, rtol=0, atol=TOLERANCE, err_msg=where)


def rows_of(batch: Batch) -> int:
    return len(next(iter(batch.values())))


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> CorpusModel:
    return MODELS[request.param]


def test_both_batches_through_every_door(
    model: CorpusModel, http: HttpClient, grpc: GrpcClient
) -> None:
    for batch, expected in zip(model.batches(), model.expected(), strict=True):
        outputs = list(expected)

        assert_close(by_http(http, model.name, batch, outputs, True), expected, "http binary")
        assert_close(by_http(http, model.name, batch, outputs, False), expected, "http json")
        assert_close(by_grpc(grpc, model.name, batch, outputs), expected, "grpc")


def test_joined_and_single_rows(model: CorpusModel, http: HttpClient) -> None:
    padded = model.name.startswith(PADDED)
    if model.row_independent is not True and not padded:
        pytest.skip("rows of this model are not independent")
    one, two = model.batches()
    expected_one, expected_two = model.expected()
    outputs = list(expected_one)

    joined = {name: np.concatenate([one[name], two[name]]) for name in one}
    expected = {n: np.concatenate([expected_one[n], expected_two[n]]) for n in outputs}
    assert_close(by_http(http, model.name, joined, outputs, True), expected, "joined")

    # All rows at once, each in a request of its own: they merge in the server.
    singles = [
        {name: array[row : row + 1] for name, array in joined.items()}
        for row in range(rows_of(joined))
    ]
    handles = [send(http, model.name, single, outputs) for single in singles]
    for row, handle in enumerate(handles):
        answer = handle.get_result()
        found = {name: answer.as_numpy(name) for name in outputs}
        single = {name: array[row : row + 1] for name, array in expected.items()}
        assert_close(found, single, f"row {row} alone")


def test_every_independent_model_is_merged_and_cut(model: CorpusModel, http: HttpClient) -> None:
    config = http.get_model_config(model.name)
    independent = model.row_independent is True or model.name.startswith(PADDED)
    if model.row_independent is not None:
        assert config["rows"]["independent"] is independent, config["rows"]["reason"]


@pytest.mark.parametrize("name", [name for name in MODELS if "dien" in name])
def test_a_request_in_which_no_row_has_a_history(name: str, http: HttpClient) -> None:
    # ONNX Runtime ends the process when a recurrent layer gets no row at all.
    batch = {key: np.zeros_like(array[:1]) for key, array in MODELS[name].batches()[0].items()}
    outputs = list(MODELS[name].expected()[0])

    found = by_http(http, name, batch, outputs, True)

    assert all(np.isfinite(array).all() for array in found.values())
    assert http.is_server_live()
