import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.settings import QueueSettings
from anabranch_server.limits import Limits
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import scale_model, write_graph
from anabranch_testing.http_doors import HttpDoor, Peer, Response, http_door, infer_request
from anabranch_wire.tensors import TensorSpec

PATIENT = QueueSettings(default_timeout_s=60.0)  # the machine may be busy
Serve = Callable[..., HttpDoor]


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
def serve(tmp_path: Path, observed: Observed) -> Iterator[Serve]:
    """Starts a door with given limits; it ends with the test."""
    with ExitStack() as stack:

        def start(
            limits: Limits, *, backend: GatedBackend | None = None, keep_alive_s: int = 5
        ) -> HttpDoor:
            models = {
                "scale": scale_model(tmp_path / "scale"),
                "wide": wide_model(tmp_path / "wide"),
            }
            context = stack.enter_context(
                door_context(
                    models, limits=limits, observed=observed, backend=backend, queue=PATIENT
                )
            )
            return stack.enter_context(http_door(context, keep_alive_s=keep_alive_s))

        yield start


def row_body(value: float = 1) -> bytes:
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [value, 0, 0, 0]}
    return json.dumps({"inputs": [tensor]}).encode()


def refused(response: Response, status: int, text: str) -> None:
    assert response.status == status
    assert response.headers["content-type"] == "application/json"
    assert response.headers["connection"] == "close"
    assert text in json.loads(response.body)["error"]


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v2/models/scale/infer", "/echo"])
def test_a_body_too_long_is_refused_before_it_is_read(
    serve: Serve, observed: Observed, path: str
) -> None:
    door = serve(Limits(max_body_bytes=1000))
    with Peer(door) as peer:
        head = infer_request(b"", path=path, headers={"Content-Length": "1001"})
        refused(peer.ask(head), 413, "body of 1001 bytes: at most 1000 are allowed")
        assert peer.rest() == b""
    with Peer(door) as peer:
        request = infer_request(b" " * (1000 - len(row_body())) + row_body(), path=path)
        assert peer.ask(request).status == 200
    assert observed.cuts == [("oip_http", "too_large")]


@pytest.mark.parametrize("path", ["/v2/models/scale/infer", "/echo"])
def test_chunks_that_add_up_to_too_much_are_refused(serve: Serve, path: str) -> None:
    door = serve(Limits(max_body_bytes=100_000))
    head = f"POST {path} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with Peer(door) as peer:
        peer.send(head + b"c350\r\n" + b"x" * 50_000 + b"\r\n")
        time.sleep(0.05)
        peer.send(b"c351\r\n" + b"x" * 50_001 + b"\r\n")
        refused(peer.read(), 413, "body: at most 100000 bytes are allowed")
        assert peer.rest() == b""


def test_the_refusal_reaches_a_peer_that_is_still_sending(serve: Serve) -> None:
    door = serve(Limits(max_body_bytes=1000))
    for _ in range(5):
        with Peer(door) as peer:
            request = infer_request(b"x" * 5_000_000)
            peer.socket.setblocking(False)
            sent = 0
            while sent < len(request):
                try:
                    sent += peer.socket.send(request[sent : sent + 100_000])
                except BlockingIOError:
                    time.sleep(0.001)
            peer.socket.settimeout(20)
            refused(peer.read(), 413, "body of 5000000 bytes")
            assert peer.rest() == b""


def test_a_refusal_waits_for_its_turn(serve: Serve) -> None:
    backend = GatedBackend()
    door = serve(Limits(max_body_bytes=1000), backend=backend)
    with Peer(door) as peer:
        backend.gate.clear()
        peer.send(infer_request(row_body(7)) + infer_request(b"x" * 2000))
        time.sleep(0.1)
        backend.gate.set()
        assert json.loads(peer.read().body)["outputs"][0]["data"] == [7.0]
        refused(peer.read(), 413, "body of 2000 bytes")


@pytest.mark.parametrize("path", ["/v2/models/scale/infer", "/cold/x"])
@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"".join(b"X-%d: 1\r\n" % n for n in range(51)), "headers: at most 50 are allowed"),
        (b"X-Long: " + b"x" * 5000 + b"\r\n", "bytes of headers: at most 4000 are allowed"),
    ],
)
def test_heads_too_large_are_refused(serve: Serve, path: str, head: bytes, text: str) -> None:
    door = serve(Limits(max_headers=50, max_header_bytes=4000))
    with Peer(door) as peer:
        peer.send(f"POST {path} HTTP/1.1\r\nHost: t\r\n".encode() + head + b"\r\n")
        refused(peer.read(), 413, text)


HOT = b"POST /v2/models/scale/infer HTTP/1.1\r\nHost: t\r\n"
CHUNKED = HOT + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (b"POST / HTTP/1.1\r\nHost: t\r\n", b"X-More: 1\r\n"),
        (b"POST / HTTP/1.1\r\nHost: t\r\nX-Long: ", b"x"),
        (CHUNKED + b"1;", b"x"),
        (CHUNKED + b"0\r\n", b"X-More: 1\r\n"),
        (b"", b"\r\n"),
    ],
)
def test_what_never_ends_is_refused(serve: Serve, first: bytes, more: bytes) -> None:
    door = serve(Limits(max_header_bytes=4000, max_uri_bytes=1000))
    with Peer(door) as peer:
        peer.send(first)
        piece = more * (2000 // len(more))
        try:
            for _ in range(100):
                peer.send(piece)
        except OSError:
            pass
        refused(peer.read(), 413, "too many bytes outside its body")


@pytest.mark.parametrize("cut", [10, 900])
def test_a_long_target_is_refused(serve: Serve, cut: int) -> None:
    door = serve(Limits(max_uri_bytes=1000))
    with Peer(door) as peer:
        line = b"GET /cold/" + b"x" * 1000 + b" HTTP/1.1\r\nHost: t\r\n\r\n"
        peer.send(line[:cut])
        time.sleep(0.02)
        peer.send(line[cut:])
        refused(peer.read(), 413, "request target: at most 1000 bytes are allowed")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        HOT + b"Content-Length: -1\r\n\r\n",
        HOT + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        HOT + b"Content-Length: 99999999999999999999\r\n\r\n",
        HOT + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"xyz\r\n",
        b"POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"GET /cold/x HTTP/1.1\r\nHost: t\r\nBad Name: 1\r\n\r\n",
        b"GET /cold/x HTTP/9.9\r\n\r\n",
        b"GET /cold/x HTTP/2.0\r\nHost: t\r\n\r\n",
        b"GET /cold/x HTTP/0.9\r\nHost: t\r\n\r\n",
        b"GET /cold/x\r\n\r\n",
        b"GET /cold/x HTTP/1.1\r\n\r\n",
        b"GET /cold/x HTTP/1.1\r\nHost: t\r\nHost: t\r\n\r\n",
        b"GET /cold/x HTTP/1.0\r\nHost: t\r\nhost: u\r\n\r\n",
        b"POST /v2/models/scale/infer HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        HOT + b"Host: u\r\nContent-Length: 0\r\n\r\n",
        b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"1ffffffffffffffff\r\n",
        b"GET \xff\xfe HTTP/1.1\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: t\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(serve: Serve, data: bytes) -> None:
    door = serve(Limits())
    with Peer(door) as peer:
        peer.send(infer_request(row_body(3)) + data)
        assert json.loads(peer.read().body)["outputs"][0]["data"] == [3.0]
        refused(peer.read(), 400, "malformed")
        assert peer.rest() == b""


@pytest.mark.parametrize("path", ["/v2/models/scale/infer", "/echo"])
@pytest.mark.parametrize(
    "lines",
    [
        b"Transfer-Encoding: gzip\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_other_transfer_codings_are_not_supported(serve: Serve, path: str, lines: bytes) -> None:
    door = serve(Limits())
    with Peer(door) as peer:
        head = f"POST {path} HTTP/1.1\r\nHost: t\r\n".encode()
        refused(peer.ask(head + lines + b"\r\n0\r\n\r\n"), 501, "nothing but chunked")
        assert peer.rest() == b""


@pytest.mark.parametrize("cut", [4, 5, 20, 24])
def test_http2_is_told_where_it_is(serve: Serve, cut: int) -> None:
    door = serve(Limits())
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    with Peer(door) as peer:
        peer.send(preface[:cut])
        time.sleep(0.02)
        peer.send(preface[cut:])
        refused(peer.read(), 400, "HTTP/2 is not spoken on this port")


@pytest.mark.parametrize("path", ["/v2/models/scale/infer", "/echo"])
@pytest.mark.parametrize("size", [b"ffffffffffffffff", b"1f5", b"0" * 40 + b"1F5"])
def test_a_chunk_too_long_is_refused_before_it_comes(serve: Serve, path: str, size: bytes) -> None:
    door = serve(Limits(max_body_bytes=1000))
    head = f"POST {path} HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"1f4\r\n" + b"\n" * 500 + b"\r\n"
    data = head + chunk + size + b";x=\r\n"
    for cut in (len(head), len(head + chunk) - 1, len(head + chunk) + 2, len(data) - 3, len(data)):
        with Peer(door) as peer:
            peer.send(data[:cut])
            time.sleep(0.02)
            peer.send(data[cut:] + b"\n")
            refused(peer.read(), 413, "body: at most 1000 bytes are allowed")
            assert peer.rest() == b""


def test_a_fault_behind_an_answer_is_not_answered_again(serve: Serve) -> None:
    door = serve(Limits())
    with Peer(door) as peer:
        head = b"POST /none HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert peer.ask(head + b"3\r\nabc\r\n").status == 404
        peer.send(b"xyz\r\n")
        assert peer.rest() == b""


# --- connections ----------------------------------------------------------------------------------


def test_connections_beyond_the_limit_are_refused(serve: Serve, observed: Observed) -> None:
    door = serve(Limits(max_connections=2))
    with Peer(door) as first, Peer(door) as second:
        assert first.ask(infer_request(row_body())).status == 200
        assert second.ask(infer_request(row_body())).status == 200
        with Peer(door) as third:
            third.send(infer_request(row_body()))
            refused(third.read(), 503, "2 connections are open")
            assert third.rest() == b""
        assert first.ask(infer_request(row_body())).status == 200
    deadline = time.monotonic() + 5
    while sum(change for _, change in observed.changes) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sum(change for _, change in observed.changes) == 0
    with Peer(door) as peer:
        assert peer.ask(infer_request(row_body())).status == 200


# --- times ----------------------------------------------------------------------------------------

QUICK = Limits(header_timeout_s=0.3, body_timeout_s=0.3, write_timeout_s=0.3)


def closing_time(peer: Peer, drip: bytes = b"") -> float:
    """Seconds until the server closes, while `drip` is sent byte by byte."""
    began = time.monotonic()
    peer.socket.settimeout(0.05)
    position = 0
    while time.monotonic() - began < 10:
        try:
            if position < len(drip):
                peer.send(drip[position : position + 1])
                position += 1
            if not peer.socket.recv(1000):
                break
        except TimeoutError:
            pass
        except OSError:
            break
    return time.monotonic() - began


def test_a_head_that_drips_in_is_cut(serve: Serve, observed: Observed) -> None:
    door = serve(QUICK)
    with Peer(door) as peer:
        assert 0.2 < closing_time(peer, infer_request(row_body())) < 3
    assert observed.cuts == [("oip_http", "slow_writer")]


@pytest.mark.parametrize("path", ["/v2/models/scale/infer", "/echo"])
def test_a_body_that_stops_is_cut_but_a_slow_one_is_not(
    serve: Serve, observed: Observed, path: str
) -> None:
    door = serve(QUICK)
    request = infer_request(row_body(), path=path)
    with Peer(door) as peer:
        peer.send(request[:-8])
        for place in range(len(request) - 8, len(request)):
            time.sleep(0.1)
            peer.send(request[place : place + 1])
        assert peer.read().status == 200
        peer.send(request[:-1])
        assert 0.2 < closing_time(peer) < 3
    assert observed.cuts == [("oip_http", "slow_writer")]


def test_an_idle_connection_is_closed(serve: Serve, observed: Observed) -> None:
    door = serve(Limits(), keep_alive_s=1)
    with Peer(door) as used, Peer(door) as unused:
        assert used.ask(infer_request(row_body())).status == 200
        assert 0.5 < closing_time(used) < 5
        assert closing_time(unused) < 5
    assert observed.cuts == [("oip_http", "idle")] * 2


def test_a_slow_computation_is_not_idleness(serve: Serve, observed: Observed) -> None:
    backend = GatedBackend()
    door = serve(QUICK, backend=backend, keep_alive_s=1)
    with Peer(door) as peer:
        backend.gate.clear()
        peer.send(infer_request(row_body()))
        time.sleep(1.6)
        backend.gate.set()
        assert peer.read().status == 200
    assert observed.cuts == []


# --- slow readers ---------------------------------------------------------------------------------


def wide_model(folder: Path) -> DenseModel:
    """y is x 1000 times; x is [N, 1] FP32: answers a thousand times as large as their requests."""
    path = write_graph(
        folder,
        "wide (float[N, 1] x) => (float[N, 1000] y) <int64[2] s = {1, 1000}> { y = Expand(x, s) }",
    )
    return DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 1)),),
        (TensorSpec("y", "FP32", (-1, 1000)),),
        RowLayout(True, 1, (0,), (0,)),
    )


def wide_request(value: float, rows: int) -> bytes:
    values = np.full((rows, 1), value, np.float32)
    tensor = {
        "name": "x",
        "shape": [rows, 1],
        "datatype": "FP32",
        "parameters": {"binary_data_size": values.nbytes},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return infer_request(
        head + values.tobytes(),
        json_bytes=len(head),
        path="/v2/models/wide/infer",
    )


def wide_scores(response: Response) -> np.ndarray:
    size = int(response.headers["inference-header-content-length"])
    return np.frombuffer(response.body[size:], np.float32)


def test_answers_stay_whole_while_later_ones_are_computed(serve: Serve) -> None:
    door = serve(Limits())
    count, rows = 64, 1000
    with Peer(door) as slow, Peer(door) as other:
        slow.send(b"".join(wide_request(place, rows) for place in range(count)))
        for place in range(20):
            scores = wide_scores(other.ask(wide_request(1000 + place, 1)))
            assert scores.tolist() == [1000 + place] * 1000
        for place in range(count):
            scores = wide_scores(slow.read())
            assert scores.size == rows * 1000
            assert (scores == place).all()


def test_reading_stops_while_answers_are_not_taken(serve: Serve, observed: Observed) -> None:
    door = serve(Limits(max_in_flight_per_client=8))
    count, rows = 50, 1000
    with Peer(door) as slow:
        slow.send(b"".join(wide_request(place, rows) for place in range(count)))
        done = -1
        while done != len(observed.scores):
            done = len(observed.scores)
            time.sleep(0.3)
        assert done < count, "the server computes for a peer that takes no answers"
        statuses = [slow.read().status for _ in range(count)]
    assert statuses.count(200) + statuses.count(503) == count
    assert statuses.count(200) >= done


def test_a_peer_that_takes_nothing_is_cut(serve: Serve, observed: Observed) -> None:
    door = serve(QUICK)
    with Peer(door) as slow:
        slow.send(b"".join(wide_request(place, 1000) for place in range(30)))
        deadline = time.monotonic() + 10
        while not observed.cuts and time.monotonic() < deadline:
            time.sleep(0.05)
    assert observed.cuts == [("oip_http", "slow_reader")]
