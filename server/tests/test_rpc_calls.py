from collections.abc import Iterator
from typing import cast

import grpc
import pytest

from anabranch_runtime.catalog import ServingState
from anabranch_server.doors import DoorContext
from anabranch_server.lifecycle import Phase
from anabranch_testing.catalogs import publish
from anabranch_testing.doors import door_context
from anabranch_testing.graphs import lookup_model, scale_model
from anabranch_testing.rpc import call, call_bytes, open_door
from anabranch_wire import oip
from anabranch_wire.services import INFERENCE

SERVICE = f"/{INFERENCE.name}"


@pytest.fixture
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorContext]:
    folder = tmp_path_factory.mktemp("models")
    models = {"scale": scale_model(folder / "scale"), "lookup": lookup_model(folder / "lookup")}
    with door_context(models) as context:
        publish(context.catalog, "empty", ServingState({}, required=False))
        yield context


@pytest.fixture
def channel(context: DoorContext) -> Iterator[grpc.Channel]:
    with open_door(context) as (_, channel):
        yield channel


def error_of(channel: grpc.Channel, name: str, body: bytes = b"") -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call_bytes(channel, f"{SERVICE}/{name}", body)
    return caught.value.code().name, caught.value.details() or ""


def test_the_server_is_live_and_ready(context: DoorContext, channel: grpc.Channel) -> None:
    live = call(channel, "ServerLive", oip.ServerLiveRequest())
    ready = call(channel, "ServerReady", oip.ServerReadyRequest())
    context.lifecycle.advance(Phase.DRAINING)
    draining = call(channel, "ServerReady", oip.ServerReadyRequest())

    assert live == oip.ServerLiveResponse(live=True)
    assert ready == oip.ServerReadyResponse(ready=True)
    assert draining == oip.ServerReadyResponse(ready=False)


@pytest.mark.parametrize(
    ("name", "version", "ready"),
    [
        ("scale", "", True),
        ("scale", "42", True),
        ("scale", "stable", True),
        ("scale", "7", False),
        ("empty", "", False),
        ("nope", "", False),
    ],
)
def test_a_model_is_ready_when_it_can_answer(
    channel: grpc.Channel, name: str, version: str, ready: bool
) -> None:
    request = oip.ModelReadyRequest(name=name, version=version)

    assert call(channel, "ModelReady", request) == oip.ModelReadyResponse(ready=ready)


def test_the_server_names_itself(channel: grpc.Channel) -> None:
    response = call(channel, "ServerMetadata", oip.ServerMetadataRequest())

    assert isinstance(response, oip.ServerMetadataResponse)
    assert (response.name, response.version) == ("anabranch", "0.1.0")
    assert "binary_tensor_data" in response.extensions


def test_metadata_has_tensors_and_versions(channel: grpc.Channel) -> None:
    tensor = oip.ModelMetadataResponse.TensorMetadata
    request = oip.ModelMetadataRequest(name="scale")

    assert call(channel, "ModelMetadata", request) == oip.ModelMetadataResponse(
        name="scale",
        versions=["42"],
        platform="onnxruntime_onnx",
        inputs=[tensor(name="x", datatype="FP32", shape=[-1, 4])],
        outputs=[tensor(name="y", datatype="FP32", shape=[-1, 1])],
    )


def test_the_configuration_is_tritons_with_our_own_parameters(channel: grpc.Channel) -> None:
    response = call(channel, "ModelConfig", oip.ModelConfigRequest(name="lookup"))

    config = cast(oip.ModelConfigResponse, response).config
    assert (config.name, config.max_batch_size) == ("lookup", 65536)
    assert config.input[0] == oip.ModelInput(name="ids", data_type="TYPE_INT64", dims=[])
    assert config.output[0] == oip.ModelOutput(name="y", data_type="TYPE_FP32", dims=[2])
    assert config.instance_group[0].count == 1
    assert config.parameters["user_inputs"].string_value == "[]"
    assert '"independent": true' in config.parameters["rows"].string_value


@pytest.mark.parametrize("name", ["ModelMetadata", "ModelConfig"])
@pytest.mark.parametrize(("model", "code"), [("nope", "NOT_FOUND"), ("empty", "UNAVAILABLE")])
def test_a_model_that_is_not_loaded_has_no_description(
    channel: grpc.Channel, name: str, model: str, code: str
) -> None:
    body = oip.ModelMetadataRequest(name=model).SerializeToString()

    assert error_of(channel, name, body)[0] == code


@pytest.mark.parametrize(
    "name",
    [
        "RepositoryIndex",
        "RepositoryModelLoad",
        "RepositoryModelUnload",
        "TraceSetting",
        "LogSettings",
    ],
)
def test_administration_is_refused_on_the_data_port(channel: grpc.Channel, name: str) -> None:
    code, details = error_of(channel, name)

    assert code == "PERMISSION_DENIED"
    assert "admin port" in details


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ModelStatistics", "/metrics"),
        ("SystemSharedMemoryStatus", "shared memory is not supported"),
        ("SystemSharedMemoryRegister", "shared memory is not supported"),
        ("CudaSharedMemoryUnregister", "shared memory is not supported"),
        ("Nothing", ""),
    ],
)
def test_what_we_do_not_have_is_unimplemented(channel: grpc.Channel, name: str, text: str) -> None:
    code, details = error_of(channel, name)

    assert code == "UNIMPLEMENTED"
    assert text in details


def test_streams_are_refused_with_a_reason(channel: grpc.Channel) -> None:
    stream = channel.stream_stream(f"{SERVICE}/ModelStreamInfer", None, None)

    with pytest.raises(grpc.RpcError) as caught:
        list(stream(iter([b"", b""]), timeout=20))

    assert caught.value.code().name == "UNIMPLEMENTED"
    assert "call ModelInfer" in str(caught.value.details())


@pytest.mark.parametrize(
    "name", [name for name, method in INFERENCE.methods.items() if not method.streams]
)
def test_bytes_that_are_no_message_are_an_invalid_argument(
    channel: grpc.Channel, name: str
) -> None:
    code, details = error_of(channel, name, b"\xff\xff\xff")

    assert code in ("INVALID_ARGUMENT", "PERMISSION_DENIED", "UNIMPLEMENTED")
    assert code != "INVALID_ARGUMENT" or "malformed" in details


def test_every_unary_method_of_the_service_has_a_handler(channel: grpc.Channel) -> None:
    missing = []
    for name, method in INFERENCE.methods.items():
        try:
            if not method.streams:
                call_bytes(channel, method.path, b"")
        except grpc.RpcError as error:
            missing += [name] if "Method not found" in str(error.details()) else []

    assert missing == []
