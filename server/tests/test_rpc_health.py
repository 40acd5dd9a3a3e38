import queue
import threading
import time
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from anabranch_runtime.catalog import ServingState
from anabranch_server.doors import DoorContext
from anabranch_server.lifecycle import Phase
from anabranch_server.rpc import GrpcDoor
from anabranch_testing.catalogs import publish
from anabranch_testing.doors import door_context
from anabranch_testing.graphs import scale_model
from anabranch_testing.rpc import call_bytes, open_door
from anabranch_wire.services import INFERENCE, RANKING

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


@pytest.fixture
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorContext]:
    with door_context({"scale": scale_model(tmp_path_factory.mktemp("models"))}) as context:
        yield context


@pytest.fixture
def door(context: DoorContext) -> Iterator[tuple[GrpcDoor, grpc.Channel]]:
    with open_door(context) as opened:
        yield opened


@pytest.fixture
def channel(door: tuple[GrpcDoor, grpc.Channel]) -> grpc.Channel:
    return door[1]


@pytest.fixture
def stub(channel: grpc.Channel) -> health_pb2_grpc.HealthStub:
    return health_pb2_grpc.HealthStub(channel)


def check(stub: health_pb2_grpc.HealthStub, service: str) -> HealthCheckResponse.ServingStatus:
    response: HealthCheckResponse = stub.Check(HealthCheckRequest(service=service), timeout=20)
    return response.status


class Watch:
    """Statuses of a Watch, read on a thread of its own."""

    def __init__(self, stub: health_pb2_grpc.HealthStub, service: str) -> None:
        self._call = stub.Watch(HealthCheckRequest(service=service), timeout=30)
        self._seen: queue.SimpleQueue[HealthCheckResponse.ServingStatus | None] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> HealthCheckResponse.ServingStatus | None:
        """Next status; None when the call has ended."""
        return self._seen.get(timeout=10)

    def cancel(self) -> None:
        self._call.cancel()

    def _read(self) -> None:
        try:
            for response in self._call:
                self._seen.put(response.status)
        except grpc.RpcError:
            pass
        self._seen.put(None)


@pytest.mark.parametrize("service", ["", INFERENCE.name])
def test_check_follows_the_lifecycle_at_once(
    context: DoorContext, stub: health_pb2_grpc.HealthStub, service: str
) -> None:
    before = check(stub, service)
    publish(context.catalog, "empty", ServingState({}))
    unready = check(stub, service)
    publish(context.catalog, "empty", None)
    again = check(stub, service)
    context.lifecycle.advance(Phase.DRAINING)
    draining = check(stub, service)

    assert [before, unready, again, draining] == [SERVING, NOT_SERVING, SERVING, NOT_SERVING]


def test_an_unknown_service_is_not_found(stub: health_pb2_grpc.HealthStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        check(stub, "nope")

    assert caught.value.code().name == "NOT_FOUND"


def test_every_service_is_listed(stub: health_pb2_grpc.HealthStub) -> None:
    statuses = stub.List(health_pb2.HealthListRequest(), timeout=20).statuses

    assert {name: status.status for name, status in statuses.items()} == {
        "": SERVING,
        INFERENCE.name: SERVING,
        RANKING.name: SERVING,
    }


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_bytes_that_are_no_request_are_an_invalid_argument(
    channel: grpc.Channel, method: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call_bytes(channel, f"/grpc.health.v1.Health/{method}", b"\xff")

    assert caught.value.code().name == "INVALID_ARGUMENT"


def test_watchers_are_told_of_every_change(
    context: DoorContext, stub: health_pb2_grpc.HealthStub
) -> None:
    whole, one, unknown = Watch(stub, ""), Watch(stub, INFERENCE.name), Watch(stub, "nope")

    assert whole.next() == one.next() == SERVING
    assert unknown.next() == HealthCheckResponse.SERVICE_UNKNOWN
    context.lifecycle.advance(Phase.DRAINING)
    assert whole.next() == one.next() == NOT_SERVING


def test_watchers_hold_no_thread(stub: health_pb2_grpc.HealthStub) -> None:
    watches = [Watch(stub, "") for _ in range(20)]

    assert [watch.next() for watch in watches] == [SERVING] * 20
    assert check(stub, "") == SERVING
    for watch in watches:
        watch.cancel()
        assert watch.next() is None
    assert check(stub, "") == SERVING


def test_a_drain_tells_watchers_and_ends_their_calls(
    context: DoorContext, door: tuple[GrpcDoor, grpc.Channel], stub: health_pb2_grpc.HealthStub
) -> None:
    watch = Watch(stub, "")
    assert watch.next() == SERVING

    context.lifecycle.advance(Phase.DRAINING)
    began = time.monotonic()
    with futures.ThreadPoolExecutor() as pool:
        pool.submit(door[0].drain, 20.0).result(timeout=10)

    assert watch.next() == NOT_SERVING
    assert watch.next() is None
    assert time.monotonic() - began < 10
