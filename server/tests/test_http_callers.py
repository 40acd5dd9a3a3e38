"""What the door keeps of its callers: how busy each address keeps it, and the traces they name."""

import json
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.settings import QueueSettings
from anabranch_server.access_log import AccessLog
from anabranch_server.app.edge import add_edge
from anabranch_server.doors import DoorContext
from anabranch_server.limits import Limits
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import scale_model
from anabranch_testing.http_doors import HttpDoor, Peer, cold_app, http_door, infer_request
from anabranch_testing.looked_up import Asked, looked_up_model, open_store, view_of
from anabranch_wire.tensors import datatype_of

JSON = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'
MOST = 6
PATIENT = QueueSettings(default_timeout_s=60.0, max_timeout_s=60.0)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
def backend() -> GatedBackend:
    return GatedBackend()


@pytest.fixture
def context(tmp_path: Path, observed: Observed, backend: GatedBackend) -> Iterator[DoorContext]:
    models = {"scale": scale_model(tmp_path)}
    limits = Limits(max_in_flight_per_client=MOST)
    with door_context(
        models, observed=observed, backend=backend, limits=limits, queue=PATIENT
    ) as context:
        yield context


@pytest.fixture
def door(context: DoorContext, backend: GatedBackend) -> Iterator[HttpDoor]:
    app = cold_app()
    add_edge(app, "routes")
    with http_door(context, app=app) as door:
        yield door
        backend.gate.set()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def busy(context: DoorContext) -> int:
    client = context.clients.find("127.0.0.1")
    return 0 if client is None else client.requests


def test_the_requests_of_a_client_count_over_all_its_connections(
    door: HttpDoor, context: DoorContext, backend: GatedBackend, observed: Observed
) -> None:
    first = Peer(door)
    first.ask(infer_request(JSON))  # from now on the head is known
    backend.gate.clear()
    peers = [first, *(Peer(door) for _ in range(MOST + 2))]
    for peer in peers[:MOST]:
        peer.send(infer_request(JSON))
    until(lambda: busy(context) == MOST)
    refused = [
        peers[MOST].ask(infer_request(JSON)),  # known
        peers[MOST + 1].ask(infer_request(JSON, headers={"X-Request-Id": "r"})),  # parsed
    ]
    probe = peers[MOST + 2].ask(b"GET /cold/probe HTTP/1.1\r\nHost: test\r\n\r\n")
    backend.gate.set()
    answered = [peer.read().status for peer in peers[:MOST]]
    again = peers[MOST].ask(infer_request(JSON)).status
    for peer in peers:
        peer.socket.close()

    for response in refused:
        assert response.status == 503
        assert json.loads(response.body) == {
            "error": f"{MOST} requests of this client wait: at most {MOST} are allowed"
        }
        assert response.headers["retry-after"] == "1"
        assert "connection" not in response.headers
    assert observed.sheds == [("scale", "client_limit")] * 2
    assert probe.status == 200
    assert answered == [200] * MOST
    assert again == 200


def test_callers_who_leave_in_the_middle_do_not_count_on(
    door: HttpDoor, context: DoorContext, backend: GatedBackend
) -> None:
    backend.gate.clear()
    stays = Peer(door)
    for _ in range(3):
        with Peer(door) as peer:
            peer.send(infer_request(JSON) * 2)
            until(lambda: busy(context) == 2)
            # An orderly end right behind the requests would be taken for one that waits.
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: busy(context) == 0)
    backend.gate.set()

    assert stays.ask(infer_request(JSON)).status == 200
    stays.socket.close()
    until(lambda: len(context.clients) == 0)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (infer_request(JSON, headers={"traceparent": PARENT, "tracestate": "a=1"}), 200),
        (infer_request(b"{", headers={"traceparent": PARENT, "tracestate": "a=1"}), 400),
        (
            b"GET /cold/word HTTP/1.1\r\nHost: test\r\n"
            b"traceparent: %b\r\ntracestate: a=1\r\n\r\n" % PARENT.encode(),
            200,
        ),
    ],
)
def test_a_trace_is_named_in_the_answer(door: HttpDoor, request_bytes: bytes, status: int) -> None:
    with Peer(door) as peer:
        answers = [peer.ask(request_bytes) for _ in range(2)]

    parents = [answer.headers["traceparent"] for answer in answers]
    assert [answer.status for answer in answers] == [status] * 2
    assert all(parent.startswith(f"00-{TRACE}-") and parent.endswith("-01") for parent in parents)
    assert len({*parents, PARENT}) == 3
    assert [answer.headers["tracestate"] for answer in answers] == ["a=1"] * 2


def test_a_malformed_trace_is_not_named(door: HttpDoor) -> None:
    headers = {"traceparent": PARENT.upper(), "tracestate": "a=1"}
    repeated = infer_request(JSON, headers={"traceparent": PARENT}).replace(
        b"traceparent:", b"traceparent: " + PARENT.encode() + b"\r\nTraceParent:"
    )
    with Peer(door) as peer:
        for request in (infer_request(JSON, headers=headers), repeated, infer_request(JSON)):
            answer = peer.ask(request)
            assert answer.status == 200
            assert not {"traceparent", "tracestate"} & set(answer.headers)


def test_access_lines_name_trace_and_span(
    tmp_path: Path, observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "anabranch_server.access_log")
    models = {"scale": scale_model(tmp_path)}
    with (
        door_context(models, observed=AccessLog(observed)) as context,
        http_door(context) as door,
        Peer(door) as peer,
    ):
        answers = [
            peer.ask(infer_request(body, headers={"traceparent": PARENT})) for body in (JSON, b"{")
        ]
        peer.ask(infer_request(JSON))

    lines = [vars(r) for r in caplog.records if getattr(r, "event", "") == "request"]
    spans = [answer.headers["traceparent"].split("-")[2] for answer in answers]
    assert [line["code"] for line in lines] == ["OK", "INVALID_ARGUMENT", "OK"]
    assert [line["trace_id"] for line in lines[:2]] == [TRACE] * 2
    assert [line["span_id"] for line in lines[:2]] == spans
    assert "trace_id" not in lines[2]
    assert [trace and trace.trace_id for trace in observed.traces] == [TRACE, TRACE, None]


def test_access_lines_say_where_the_time_of_a_scored_request_went(
    tmp_path: Path, observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "anabranch_server.access_log")
    models = {"scale": scale_model(tmp_path)}
    with (
        door_context(models, observed=AccessLog(observed)) as context,
        http_door(context) as door,
        Peer(door) as peer,
    ):
        for body in (JSON, b"{"):
            peer.ask(infer_request(body))

    scored, failed = [vars(r) for r in caplog.records if getattr(r, "event", "") == "request"]
    stages = ("decode_ms", "queue_ms", "run_ms", "encode_ms")
    assert all(scored[stage] >= 0 for stage in stages)
    assert sum(scored[stage] for stage in stages) == pytest.approx(scored["duration_ms"], abs=0.01)
    assert scored["batch_rows"] == scored["rows"] > 0
    assert not {*stages, "batch_rows"} & failed.keys()
    assert "lookup_ms" not in scored


def test_access_lines_of_models_with_lookups_say_what_those_took(
    tmp_path: Path, observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "anabranch_server.access_log")
    models = {"looked": looked_up_model(tmp_path)}
    stores = {"looked": view_of(open_store(tmp_path / "store"))}
    asked = Asked.random(np.random.default_rng(3), 5)
    inputs = [
        {
            "name": name, "datatype": datatype_of(array.dtype), "shape": list(array.shape),
            "data": array.ravel().tolist(),
        }
        for name, array in asked.named().items()
    ]  # fmt: skip
    body = json.dumps({"inputs": inputs}).encode()
    with (
        door_context(models, stores=stores, observed=AccessLog(observed)) as context,
        http_door(context) as door,
        Peer(door) as peer,
    ):
        answer = peer.ask(infer_request(body, path="/v2/models/looked/infer"))

    assert answer.status == 200, answer.body
    (line,) = [vars(r) for r in caplog.records if getattr(r, "event", "") == "request"]
    stages = ("decode_ms", "queue_ms", "lookup_ms", "run_ms", "encode_ms")
    assert all(line[stage] >= 0 for stage in stages)
    assert line["lookup_ms"] > 0
    assert sum(line[stage] for stage in stages) == pytest.approx(line["duration_ms"], abs=0.01)
