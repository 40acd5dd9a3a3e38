from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_reflection.v1alpha.reflection_pb2 import (
    ServerReflectionRequest,
    ServerReflectionResponse,
)

from anabranch_server.rpc.reflection import REFLECTION_SERVICES
from anabranch_testing.doors import door_context
from anabranch_testing.rpc import call, open_door
from anabranch_wire.oip import ServerLiveRequest, ServerLiveResponse
from anabranch_wire.services import INFERENCE, RANKING


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    with door_context({}) as context, open_door(context) as (_, channel):
        yield channel


def test_every_service_is_listed(channel: grpc.Channel) -> None:
    services = ProtoReflectionDescriptorDatabase(channel).get_services()

    assert set(services) == {
        INFERENCE.name,
        RANKING.name,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


@pytest.mark.parametrize(
    ("service", "method"),
    [(INFERENCE.name, "ModelInfer"), (RANKING.name, "Rank"), ("grpc.health.v1.Health", "Check")],
)
def test_a_client_without_proto_files_learns_the_calls(
    channel: grpc.Channel, service: str, method: str
) -> None:
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))

    assert method in pool.FindServiceByName(service).methods_by_name


@pytest.mark.parametrize("service", REFLECTION_SERVICES)
def test_both_names_of_the_protocol_are_answered(channel: grpc.Channel, service: str) -> None:
    stream = channel.stream_stream(
        f"/{service}/ServerReflectionInfo",
        ServerReflectionRequest.SerializeToString,
        ServerReflectionResponse.FromString,
    )
    ask = ServerReflectionRequest(file_containing_symbol=INFERENCE.name)

    (answer,) = stream(iter([ask]), timeout=20)

    (file,) = answer.file_descriptor_response.file_descriptor_proto
    assert FileDescriptorProto.FromString(file).package == "inference"


@pytest.mark.parametrize(
    "ask",
    [
        ServerReflectionRequest(file_by_filename="nope.proto"),
        ServerReflectionRequest(file_containing_symbol="nope.Nope"),
        ServerReflectionRequest(all_extension_numbers_of_type="nope.Nope"),
        ServerReflectionRequest(),
    ],
)
def test_what_is_not_there_is_an_error_in_the_stream(
    channel: grpc.Channel, ask: ServerReflectionRequest
) -> None:
    stream = channel.stream_stream(
        f"/{REFLECTION_SERVICES[0]}/ServerReflectionInfo",
        ServerReflectionRequest.SerializeToString,
        ServerReflectionResponse.FromString,
    )

    (answer,) = stream(iter([ask]), timeout=20)

    assert answer.HasField("error_response")


def test_bytes_that_are_no_request_end_the_stream(channel: grpc.Channel) -> None:
    stream = channel.stream_stream(f"/{REFLECTION_SERVICES[0]}/ServerReflectionInfo", None, None)

    with pytest.raises(grpc.RpcError) as caught:
        list(stream(iter([b"\xff"]), timeout=20))

    assert caught.value.code().name == "INVALID_ARGUMENT"


def test_open_streams_stop_nobody_else(channel: grpc.Channel) -> None:
    stream = channel.stream_stream(f"/{REFLECTION_SERVICES[0]}/ServerReflectionInfo", None, None)

    def never() -> Iterator[bytes]:
        while True:
            yield ServerReflectionRequest(list_services="").SerializeToString()

    calls = [stream(never(), timeout=30) for _ in range(4)]
    for open_call in calls[:2]:
        next(iter(open_call))

    assert call(channel, "ServerLive", ServerLiveRequest()) == ServerLiveResponse(live=True)
    for open_call in calls:
        open_call.cancel()  # type: ignore[no-untyped-call]  # of grpc
