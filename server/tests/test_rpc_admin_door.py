import asyncio
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from anabranch_server.rpc.admin_door import AdminGrpcDoor
from anabranch_testing.admin_ports import AdminPorts, admin_ports
from anabranch_testing.administrations import MemoryAdministration, model_view
from anabranch_testing.rpc import call as call_message
from anabranch_testing.rpc import call_bytes
from anabranch_wire import oip
from anabranch_wire.errors import Conflict, Unavailable
from anabranch_wire.services import INFERENCE


@pytest.fixture
def administration() -> MemoryAdministration:
    return MemoryAdministration({"ctr": model_view("ctr", 42), "home": model_view("home")})


@pytest.fixture
def ports(administration: MemoryAdministration) -> Iterator[AdminPorts]:
    with admin_ports(administration) as ports:
        yield ports


@pytest.fixture
def channel(ports: AdminPorts) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(ports.grpc) as channel:
        yield channel


def call(channel: grpc.Channel, name: str, request: Message) -> Any:
    return call_message(channel, name, request)


def failure(channel: grpc.Channel, name: str, request: Message) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, name, request)
    return caught.value.code().name, caught.value.details() or ""


def test_the_server_is_live_and_says_whether_it_is_ready(
    administration: MemoryAdministration, channel: grpc.Channel
) -> None:
    assert call(channel, "ServerLive", oip.ServerLiveRequest()).live
    assert call(channel, "ServerReady", oip.ServerReadyRequest()).ready
    administration.unready = "the server is starting"
    assert not call(channel, "ServerReady", oip.ServerReadyRequest()).ready


def test_metadata_names_what_this_port_is_for(channel: grpc.Channel) -> None:
    metadata = call(channel, "ServerMetadata", oip.ServerMetadataRequest())

    assert (metadata.name, metadata.version) == ("anabranch", "0.1.0")
    assert list(metadata.extensions) == ["model_repository", "logging", "trace"]


def test_the_index_lists_versions_or_what_is_ready(channel: grpc.Channel) -> None:
    def listed(*, ready: bool) -> list[tuple[str, str, str, str]]:
        answer = call(channel, "RepositoryIndex", oip.RepositoryIndexRequest(ready=ready))
        return [(each.name, each.version, each.state, each.reason) for each in answer.models]

    assert listed(ready=True) == [("ctr", "42", "READY", "")]
    assert listed(ready=False) == [
        ("ctr", "42", "READY", ""),
        ("home", "", "UNAVAILABLE", "no version is loaded"),
    ]


@pytest.mark.parametrize(
    ("name", "request_class"),
    [
        ("RepositoryModelLoad", oip.RepositoryModelLoadRequest),
        ("RepositoryModelUnload", oip.RepositoryModelUnloadRequest),
    ],
)
def test_a_change_that_cannot_be_made_is_an_error(
    administration: MemoryAdministration, channel: grpc.Channel, name: str, request_class: type
) -> None:
    assert failure(channel, name, request_class(model_name="nope"))[0] == "NOT_FOUND"
    named = request_class(model_name="ctr", repository_name="other")
    assert failure(channel, name, named)[0] == "UNIMPLEMENTED"
    administration.refused = Conflict("op-000007 is at work")
    refused = failure(channel, name, request_class(model_name="ctr"))
    assert refused == ("ABORTED", "op-000007 is at work")
    administration.broken = "version 43: checksum"
    code, text = failure(channel, name, request_class(model_name="ctr"))
    assert code == "UNAVAILABLE"
    assert "version 43: checksum" in text


def test_a_load_takes_no_parameters(channel: grpc.Channel) -> None:
    for parameter, code in (
        ("config", "UNIMPLEMENTED"),
        ("file:1/model.onnx", "UNIMPLEMENTED"),
        ("fast", "INVALID_ARGUMENT"),
    ):
        request = oip.RepositoryModelLoadRequest(model_name="ctr")
        request.parameters[parameter].string_param = "{}"
        assert failure(channel, "RepositoryModelLoad", request)[0] == code


def test_probes_are_answered_while_loads_wait_and_a_caller_who_leaves_changes_nothing(
    administration: MemoryAdministration, ports: AdminPorts, channel: grpc.Channel
) -> None:
    async def close_gate() -> asyncio.Event:
        administration.gate = asyncio.Event()
        return administration.gate

    gate = ports.on_loop(close_gate)
    method = INFERENCE.methods["RepositoryModelLoad"]
    load = channel.unary_unary(
        method.path, method.request_class.SerializeToString, method.response_class.FromString
    )
    begun = load.future(oip.RepositoryModelLoadRequest(model_name="ctr"), timeout=60)
    late = load.future(oip.RepositoryModelLoadRequest(model_name="home"), timeout=60)
    deadline = time.monotonic() + 20
    while len(administration.asked) < 2:
        assert time.monotonic() < deadline
        assert call(channel, "ServerLive", oip.ServerLiveRequest()).live
    late.cancel()  # type: ignore[no-untyped-call]  # of grpc
    ports.loop.call_soon_threadsafe(gate.set)

    assert begun.result(20) == oip.RepositoryModelLoadResponse()

    async def finish() -> None:
        if administration.tasks:
            await asyncio.wait(administration.tasks)

    ports.on_loop(finish)
    assert {each.state for each in administration.made.values()} == {"DONE"}


def test_more_loads_than_threads_still_leave_room_for_probes(
    administration: MemoryAdministration, ports: AdminPorts, channel: grpc.Channel
) -> None:
    async def close_gate() -> asyncio.Event:
        administration.gate = asyncio.Event()
        names = [f"m{index}" for index in range(20)]
        administration.known |= {name: model_view(name, 1) for name in names}
        return administration.gate

    gate = ports.on_loop(close_gate)
    with futures.ThreadPoolExecutor(20) as pool:
        loads = [
            pool.submit(
                call,
                channel,
                "RepositoryModelLoad",
                oip.RepositoryModelLoadRequest(model_name=f"m{index}"),
            )
            for index in range(20)
        ]
        while len(administration.asked) < 8:
            assert call(channel, "ServerReady", oip.ServerReadyRequest()).ready
        ports.loop.call_soon_threadsafe(gate.set)
        for each in loads:
            each.result(20)


def test_scoring_belongs_to_the_data_port(channel: grpc.Channel) -> None:
    code, text = failure(channel, "ModelInfer", oip.ModelInferRequest(model_name="ctr"))
    assert (code, text) == ("PERMISSION_DENIED", "ModelInfer is answered on the data port only")
    stream = channel.stream_stream(INFERENCE.methods["ModelStreamInfer"].path, None, None)
    with pytest.raises(grpc.RpcError) as caught:
        list(stream(iter([b""]), timeout=20))
    assert caught.value.code().name == "PERMISSION_DENIED"


def test_bytes_that_are_no_request_are_refused(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call_bytes(channel, INFERENCE.methods["RepositoryIndex"].path, b"\xff\xff")
    assert caught.value.code().name == "INVALID_ARGUMENT"


def test_health_and_reflection_are_here_too(
    administration: MemoryAdministration, channel: grpc.Channel
) -> None:
    def health() -> Any:
        body = health_pb2.HealthCheckRequest().SerializeToString()
        answer = call_bytes(channel, "/grpc.health.v1.Health/Check", body)
        return health_pb2.HealthCheckResponse.FromString(answer).status

    assert health() == health_pb2.HealthCheckResponse.SERVING
    administration.unready = "the server is starting"
    assert health() == health_pb2.HealthCheckResponse.NOT_SERVING
    assert INFERENCE.name in ProtoReflectionDescriptorDatabase(channel).get_services()


def test_trace_settings_say_that_requests_are_not_traced(channel: grpc.Channel) -> None:
    settings = call(channel, "TraceSetting", oip.TraceSettingRequest()).settings
    assert {name: list(each.value) for name, each in settings.items()} == {"trace_level": ["OFF"]}
    wanted = oip.TraceSettingRequest()
    wanted.settings["trace_level"].value.append("TIMESTAMPS")
    code, text = failure(channel, "TraceSetting", wanted)
    assert code == "UNIMPLEMENTED"
    assert "POST /admin/v1/trace" in text
    assert failure(channel, "TraceSetting", oip.TraceSettingRequest(model_name="nope"))[0] == (
        "NOT_FOUND"
    )


def test_a_loop_that_ended_is_unavailable(administration: MemoryAdministration) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    door = AdminGrpcDoor(administration, loop, "127.0.0.1:0", "0.1.0")
    door.start()
    with grpc.insecure_channel(f"127.0.0.1:{door.port}") as channel:
        assert failure(channel, "ServerLive", oip.ServerLiveRequest())[0] == "UNAVAILABLE"
        body = health_pb2.HealthCheckRequest().SerializeToString()
        answer = call_bytes(channel, "/grpc.health.v1.Health/Check", body)
        status = health_pb2.HealthCheckResponse.FromString(answer).status
        assert status == health_pb2.HealthCheckResponse.NOT_SERVING
    door.drain(1.0)


def test_an_address_that_cannot_be_listened_on_is_named(
    administration: MemoryAdministration,
) -> None:
    loop = asyncio.new_event_loop()
    with pytest.raises(Unavailable, match=r"192\.0\.2\.1:0"):
        AdminGrpcDoor(administration, loop, "192.0.2.1:0", "0.1.0")
    loop.close()
