"""Triton's own clients against our doors in one process, messages of both packages side by side."""

import asyncio
import gc
import queue
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from anabranch_runtime.catalog import ServingState
from anabranch_server.app import create_app
from anabranch_server.doors import DoorContext
from anabranch_testing.catalogs import publish
from anabranch_testing.doors import door_context
from anabranch_testing.graphs import scale_model
from anabranch_testing.http_doors import http_door
from anabranch_testing.rpc import open_door
from anabranch_wire.oip import ModelInferRequest

Client: TypeAlias = Any  # tritonclient has no types

ROWS = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.float32)
SCORES = [[4321.0], [1234.0]]


@pytest.fixture(autouse=True)
def collected_here() -> Iterator[None]:
    """Collect the clients on this thread: gevent forbids to close one on a server's thread."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorContext]:
    with door_context({"scale": scale_model(tmp_path_factory.mktemp("models"))}) as context:
        publish(context.catalog, "empty", ServingState({}, required=False))
        yield context


@pytest.fixture(scope="module")
def http_address(context: DoorContext) -> Iterator[str]:
    with http_door(context, app=create_app(context)) as door:
        yield f"127.0.0.1:{door.port}"


@pytest.fixture(scope="module")
def grpc_address(context: DoorContext) -> Iterator[str]:
    with open_door(context) as (door, _):
        yield f"127.0.0.1:{door.port}"


def grpc_client(address: str) -> Client:
    return triton_grpc.InferenceServerClient(address)


def grpc_aio_client(address: str) -> Client:
    return triton_grpc_aio.InferenceServerClient(address)


def http_client(address: str) -> Client:
    return triton_http.InferenceServerClient(address)


def http_aio_client(address: str) -> Client:
    return triton_http_aio.InferenceServerClient(address)


def grpc_inputs() -> list[object]:
    tensor = triton_grpc.InferInput("x", list(ROWS.shape), "FP32")
    tensor.set_data_from_numpy(ROWS)
    return [tensor]


def http_inputs(*, binary: bool) -> list[object]:
    tensor = triton_http.InferInput("x", list(ROWS.shape), "FP32")
    tensor.set_data_from_numpy(ROWS, binary_data=binary)
    return [tensor]


def check_scores(scores: NDArray[Any] | None) -> None:
    assert scores is not None
    assert scores.dtype == np.float32
    assert scores.tolist() == SCORES


def status_of(call: Callable[[], object]) -> str:
    """Status of the error that `call` must raise."""
    try:
        call()
    except InferenceServerException as error:
        return str(error.status())
    raise AssertionError("expected an error")


def test_our_messages_are_not_theirs() -> None:
    theirs: Any = triton_grpc.service_pb2.ModelInferRequest

    assert theirs is not ModelInferRequest
    assert theirs.FromString(ModelInferRequest(id="r").SerializeToString()).id == "r"


def test_the_grpc_client(grpc_address: str) -> None:
    with grpc_client(grpc_address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("scale")
        assert client.is_model_ready("scale", "42")
        assert not client.is_model_ready("nope")
        assert not client.is_model_ready("empty")
        assert client.get_server_metadata().name == "anabranch"
        assert client.get_model_metadata("scale").versions == ["42"]
        config = client.get_model_config("scale", as_json=True)["config"]
        assert (config["name"], config["max_batch_size"]) == ("scale", 65536)

        result = client.infer(
            "scale",
            grpc_inputs(),
            request_id="r-1",
            outputs=[triton_grpc.InferRequestedOutput("y")],
            client_timeout=20,
            timeout=5_000_000,
            priority=1,
        )

        check_scores(result.as_numpy("y"))
        assert result.get_response().id == "r-1"
        assert result.get_response().parameters["delta"].int64_param == 17


def test_the_grpc_client_compressing(grpc_address: str) -> None:
    with grpc_client(grpc_address) as client:
        for algorithm in ("gzip", "deflate"):
            result = client.infer("scale", grpc_inputs(), compression_algorithm=algorithm)
            check_scores(result.as_numpy("y"))


def test_the_grpc_client_calling_back(grpc_address: str) -> None:
    results: asyncio.Queue[object] = asyncio.Queue()

    async def run() -> object:
        loop = asyncio.get_running_loop()
        with grpc_client(grpc_address) as client:
            client.async_infer(
                "scale",
                grpc_inputs(),
                lambda result, error: loop.call_soon_threadsafe(
                    results.put_nowait, error or result
                ),
            )
            return await asyncio.wait_for(results.get(), 20)

    result = asyncio.run(run())
    assert isinstance(result, triton_grpc.InferResult)
    check_scores(result.as_numpy("y"))


def test_errors_reach_the_grpc_client_as_they_are(grpc_address: str) -> None:
    with grpc_client(grpc_address) as client:
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: client.infer("nope", grpc_inputs()), "NOT_FOUND"),
            (lambda: client.get_model_metadata("empty"), "UNAVAILABLE"),
            (lambda: client.load_model("scale"), "PERMISSION_DENIED"),
            (client.get_model_repository_index, "PERMISSION_DENIED"),
            (client.get_inference_statistics, "UNIMPLEMENTED"),
            (client.get_system_shared_memory_status, "UNIMPLEMENTED"),
        ]
        for call, code in calls:
            assert status_of(call) == f"StatusCode.{code}"


def test_the_grpc_stream_client_is_told_that_there_is_no_stream(grpc_address: str) -> None:
    errors: queue.SimpleQueue[object] = queue.SimpleQueue()
    with grpc_client(grpc_address) as client:
        client.start_stream(lambda result, error: errors.put(error))
        error = errors.get(timeout=20)
        client.stop_stream()

    assert "streaming is not supported" in str(error)


def test_the_grpc_asyncio_client(grpc_address: str) -> None:
    async def run() -> None:
        async with grpc_aio_client(grpc_address) as client:
            assert await client.is_server_ready()
            results = await asyncio.gather(
                *(client.infer("scale", grpc_inputs()) for _ in range(20))
            )
        for result in results:
            check_scores(result.as_numpy("y"))

    asyncio.run(run())


@pytest.mark.parametrize("binary", [True, False])
def test_the_http_client(http_address: str, binary: bool) -> None:
    with http_client(http_address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("scale")
        assert not client.is_model_ready("nope")
        assert not client.is_model_ready("empty")
        assert client.get_server_metadata()["name"] == "anabranch"
        assert client.get_model_metadata("scale", "42")["versions"] == ["42"]
        assert client.get_model_config("scale")["max_batch_size"] == 65536

        result = client.infer(
            "scale",
            http_inputs(binary=binary),
            request_id="r-1",
            outputs=[triton_http.InferRequestedOutput("y", binary_data=binary)],
            timeout=5_000_000,
        )

        check_scores(result.as_numpy("y"))
        assert result.get_response()["id"] == "r-1"


def test_errors_reach_the_http_client_as_they_are(http_address: str) -> None:
    with http_client(http_address) as client:
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: client.infer("nope", http_inputs(binary=True)), "404"),
            (lambda: client.get_model_metadata("empty"), "503"),
            (lambda: client.load_model("scale"), "403"),
            (lambda: client.get_inference_statistics("scale"), "501"),
        ]
        for call, status in calls:
            assert status_of(call) == status


def test_the_http_asyncio_client(http_address: str) -> None:
    async def run() -> None:
        async with http_aio_client(http_address) as client:
            assert await client.is_server_ready()
            for _ in range(3):
                result = await client.infer("scale", http_inputs(binary=True))
                check_scores(result.as_numpy("y"))

    asyncio.run(run())
