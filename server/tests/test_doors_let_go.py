"""No door keeps a version: neither an idle connection nor what it remembers of earlier requests."""

import gc
import json
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from anabranch_runtime.served import ServedVersion
from anabranch_runtime.settings import QueueSettings
from anabranch_server.doors import DoorContext
from anabranch_testing.catalogs import publish
from anabranch_testing.doors import door_context
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import lookup_model
from anabranch_testing.http_doors import Peer, http_door, infer_request
from anabranch_testing.rpc import infer, open_door, raw_request
from anabranch_wire.oip import ModelInferRequest

BAD = 99
"""An id that the graph fails on."""


@pytest.fixture
def backend() -> GatedBackend:
    return GatedBackend()


@pytest.fixture
def context(backend: GatedBackend, tmp_path: Path) -> Iterator[DoorContext]:
    models = {"lookup": lookup_model(tmp_path)}
    queue = QueueSettings(max_requests=1, default_timeout_s=20.0)
    gc.collect()
    gc.disable()  # a server that idles collects no cycles
    try:
        with door_context(models, backend=backend, queue=queue) as context:
            yield context
            backend.gate.set()
    finally:
        gc.enable()


def is_let_go(context: DoorContext) -> bool:
    """Whether nobody has the version any more, soon after the catalog has not."""
    watched: weakref.ref[ServedVersion] = weakref.ref(context.catalog.resolve("lookup"))
    publish(context.catalog, "lookup", None)
    end_s = time.monotonic() + 5.0
    while watched() is not None and time.monotonic() < end_s:
        time.sleep(0.01)  # threads may be about to leave their last request
    return watched() is None


def binary_request(*ids: int, shape: int | None = None, timeout_ms: str = "20000") -> bytes:
    data = np.array(ids, np.int64).tobytes()
    tensor = {
        "name": "ids",
        "datatype": "INT64",
        "shape": [len(ids) if shape is None else shape],
        "parameters": {"binary_data_size": len(data)},
    }
    text = json.dumps({"inputs": [tensor]}).encode()
    path = "/v2/models/lookup/infer"
    return infer_request(
        text + data, path=path, json_bytes=len(text), headers={"Anabranch-Timeout-Ms": timeout_ms}
    )


def json_request(rows: int) -> bytes:
    tensor = {"name": "ids", "datatype": "INT64", "shape": [rows], "data": [1] * rows}
    body = json.dumps({"inputs": [tensor]}).encode()
    return infer_request(body, path="/v2/models/lookup/infer")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (binary_request(1, 2), 200),
        (json_request(80_000), 413),
        (json_request(60_000), 200),
        (binary_request(BAD), 400),
        (binary_request(1, shape=2), 400),
        (binary_request(1, timeout_ms="0.001"), 504),
    ],
    ids=["binary", "too long", "long json", "fails in the graph", "malformed", "late"],
)
def test_idle_http_connections_keep_no_version(
    context: DoorContext, request_bytes: bytes, status: int
) -> None:
    with http_door(context) as door, Peer(door) as peer:
        for _ in range(3):
            assert peer.ask(request_bytes).status == status

        assert is_let_go(context)


def test_refused_http_requests_keep_no_version(context: DoorContext, backend: GatedBackend) -> None:
    with http_door(context) as door, Peer(door) as busy, Peer(door) as waiting, Peer(door) as peer:
        backend.hold()
        busy.send(binary_request(1))
        assert backend.entered.acquire(timeout=10)
        statuses = []
        waiting.send(binary_request(2) * 3)
        backend.gate.set()
        statuses = [waiting.read().status for _ in range(3)]
        assert busy.read().status == 200
        assert peer.ask(binary_request(3)).status == 200
        assert 503 in statuses

        assert is_let_go(context)


@pytest.mark.parametrize(
    ("ids", "code"), [([1, 2], None), ([BAD], "INVALID_ARGUMENT")], ids=["answered", "failed"]
)
def test_idle_grpc_channels_keep_no_version(
    context: DoorContext, ids: list[int], code: str | None
) -> None:
    request = raw_request("lookup", {"ids": np.array(ids, np.int64)})
    with open_door(context) as (_, channel):
        for _ in range(3):
            assert _code_of(channel, request) == code

        assert is_let_go(context)


def test_late_grpc_calls_keep_no_version(context: DoorContext, backend: GatedBackend) -> None:
    request = raw_request("lookup", {"ids": np.array([1], np.int64)})
    with open_door(context) as (_, channel):
        backend.hold()
        assert _code_of(channel, request, timeout_s=0.2) == "DEADLINE_EXCEEDED"
        backend.gate.set()
        assert _code_of(channel, request) is None

        assert is_let_go(context)


def _code_of(
    channel: grpc.Channel, request: ModelInferRequest, timeout_s: float = 20.0
) -> str | None:
    try:
        infer(channel, request, timeout_s=timeout_s)
    except grpc.RpcError as error:
        name: str = error.code().name
        return name
    return None
