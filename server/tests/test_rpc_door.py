import selectors
import socket
import time
from concurrent import futures
from pathlib import Path

import grpc
import numpy as np
import pytest

from anabranch_runtime.catalog import ServingState
from anabranch_server.doors import DoorContext
from anabranch_server.lifecycle import Lifecycle, Phase
from anabranch_server.limits import Limits
from anabranch_server.rpc import GrpcDoor
from anabranch_testing.catalogs import OwnCatalog
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.graphs import scale_model
from anabranch_testing.rpc import HeldGroup, failure, infer, open_door, raw_request
from anabranch_wire.errors import Unavailable
from anabranch_wire.oip import ModelInferRequest
from anabranch_wire.services import INFERENCE

ROW = np.zeros((1, 4), np.float32)


def held_context(folder: Path, group: HeldGroup) -> DoorContext:
    catalog = OwnCatalog()
    catalog.publish("held", ServingState({42: group.serve(scale_model(folder))}, default=42))
    lifecycle = Lifecycle(catalog)
    lifecycle.advance(Phase.SERVING)
    return DoorContext(catalog, Limits(), lifecycle, Observed(), "0.1.0")


def wait_for_tickets(group: HeldGroup, count: int) -> None:
    deadline = time.monotonic() + 10
    while len(group.tickets) < count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_message_beyond_its_limit_is_refused(tmp_path: Path) -> None:
    models = {"scale": scale_model(tmp_path)}
    with (
        door_context(models, limits=Limits(max_body_bytes=1000)) as context,
        open_door(context) as (_, channel),
    ):
        code, _ = failure(channel, raw_request("scale", {"x": np.zeros((100, 4), np.float32)}))

        assert code == "RESOURCE_EXHAUSTED"
        assert infer(channel, raw_request("scale", {"x": ROW}))[0].model_name == "scale"


def test_requests_and_answers_beyond_grpcs_own_limit_pass(tmp_path: Path) -> None:
    rows = 400_000
    models = {"scale": scale_model(tmp_path)}
    with (
        door_context(models, limits=Limits(max_rows=rows)) as context,
        open_door(context) as (_, channel),
    ):
        large = raw_request("scale", {"x": np.ones((rows, 4), np.float32)})
        response, _ = infer(channel, large)

        assert large.ByteSize() > 6_000_000
        assert len(response.raw_output_contents[0]) == 4 * rows


def test_a_drain_finishes_what_is_in_flight_and_refuses_what_is_new(tmp_path: Path) -> None:
    group = HeldGroup()
    context = held_context(tmp_path, group)
    with open_door(context) as (door, channel), futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(infer, channel, raw_request("held", {"x": ROW}))
        wait_for_tickets(group, 1)

        drained = pool.submit(door.drain, 20.0)
        time.sleep(0.1)
        refused = failure(channel, raw_request("held", {"x": ROW}))[0]
        group.finish()

        assert answer.result(timeout=10)[0].model_version == "42"
        drained.result(timeout=10)
        assert refused == "UNAVAILABLE"


def test_a_drain_cancels_what_outlives_its_grace(tmp_path: Path) -> None:
    group = HeldGroup()
    context = held_context(tmp_path, group)
    with open_door(context) as (door, channel), futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(failure, channel, raw_request("held", {"x": ROW}))
        wait_for_tickets(group, 1)

        door.drain(0.1)

        assert answer.result(timeout=10)[0] in ("CANCELLED", "UNAVAILABLE")
        assert group.tickets[0].cancelled
        group.finish()


def test_an_address_that_cannot_be_listened_on_is_named() -> None:
    with door_context({}) as context, pytest.raises(Unavailable, match=r"192\.0\.2\.1:0"):
        GrpcDoor(context, "192.0.2.1:0")


def test_a_door_that_was_never_started_can_be_closed() -> None:
    with door_context({}) as context:
        GrpcDoor(context, "127.0.0.1:0").drain(1.0)


def test_connections_are_asked_to_reconnect_at_their_age(tmp_path: Path) -> None:
    ready, idle = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.IDLE
    states: list[grpc.ChannelConnectivity] = []
    with door_context({"scale": scale_model(tmp_path)}) as context:
        door = GrpcDoor(context, "127.0.0.1:0", max_connection_age_s=0.2)
        door.start()
        with grpc.insecure_channel(f"127.0.0.1:{door.port}") as channel:
            channel.subscribe(states.append)
            infer(channel, raw_request("scale", {"x": ROW}))
            deadline = time.monotonic() + 10
            while ready not in states or idle not in states[states.index(ready) :]:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert infer(channel, raw_request("scale", {"x": ROW}))[0].model_name == "scale"
        door.drain(1.0)


def test_connections_of_one_age_do_not_leave_together(tmp_path: Path) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    with door_context({"scale": scale_model(tmp_path)}) as context:
        door = GrpcDoor(context, "127.0.0.1:0", max_connection_age_s=2.0)
        door.start()
        peers = [socket.create_connection(("127.0.0.1", door.port), 20) for _ in range(16)]
        began = time.monotonic()
        for peer in peers:
            peer.sendall(preface)
        with selectors.DefaultSelector() as selector:
            for peer in peers:
                selector.register(peer, selectors.EVENT_READ, bytearray())
            left: dict[int, float] = {}
            while len(left) < len(peers):
                for key, _ in selector.select(20):
                    assert isinstance(key.fileobj, socket.socket)
                    data = key.fileobj.recv(4096)
                    key.data.extend(data)
                    if not data or _has_goaway(key.data):
                        left[key.fd] = time.monotonic() - began
                        selector.unregister(key.fileobj)
        for peer in peers:
            peer.close()
        door.drain(1.0)

    assert min(left.values()) > 1.7
    assert max(left.values()) - min(left.values()) > 0.05  # 0.4 s are expected of 16


def _has_goaway(frames: bytearray) -> bool:
    at = 0
    while at + 9 <= len(frames):
        if frames[at + 3] == 7:
            return True
        at += 9 + int.from_bytes(frames[at : at + 3], "big")
    return False


def test_a_compressed_message_is_measured_unpacked(tmp_path: Path) -> None:
    models = {"scale": scale_model(tmp_path)}
    large = raw_request("scale", {"x": np.zeros((10_000, 4), np.float32)})
    with (
        door_context(models, limits=Limits(max_body_bytes=10_000)) as context,
        open_door(context) as (_, channel),
    ):
        call = channel.unary_unary(
            INFERENCE.methods["ModelInfer"].path, ModelInferRequest.SerializeToString, None
        )
        with pytest.raises(grpc.RpcError) as caught:
            call(large, timeout=20, compression=grpc.Compression.Gzip)

        assert caught.value.code().name == "RESOURCE_EXHAUSTED"
        assert infer(channel, raw_request("scale", {"x": ROW}))[0].model_name == "scale"


def test_connections_beyond_their_limit_are_closed(tmp_path: Path) -> None:
    models = {"scale": scale_model(tmp_path)}
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    with (
        door_context(models, limits=Limits(max_connections=2)) as context,
        open_door(context) as (door, channel),
    ):
        infer(channel, raw_request("scale", {"x": ROW}))
        peers = [socket.create_connection(("127.0.0.1", door.port), 20) for _ in range(2)]
        for peer in peers:
            peer.sendall(preface)
        answers = [_first_bytes(peer) for peer in peers]

        assert sorted(bool(answer) for answer in answers) == [False, True]
        assert infer(channel, raw_request("scale", {"x": ROW}))[0].model_name == "scale"
        for peer in peers:
            peer.close()


def _first_bytes(peer: socket.socket) -> bytes:
    try:
        return peer.recv(9)
    except ConnectionResetError:
        return b""
