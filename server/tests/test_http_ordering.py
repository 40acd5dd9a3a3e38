import gzip
import itertools
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.settings import QueueSettings
from anabranch_server.doors import DoorContext
from anabranch_server.http import decoders
from anabranch_server.lifecycle import Phase
from anabranch_server.limits import Limits
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import scale_model
from anabranch_testing.http_doors import HttpDoor, Peer, http_door, infer_request

PATIENT = QueueSettings(default_timeout_s=30.0, max_rows=10**7)  # the machine may be busy


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
def backend() -> GatedBackend:
    return GatedBackend()


@pytest.fixture
def context(tmp_path: Path, observed: Observed, backend: GatedBackend) -> Iterator[DoorContext]:
    models = {"scale": scale_model(tmp_path / "scale")}
    limits = Limits(max_in_flight_per_client=8)
    with door_context(
        models, observed=observed, backend=backend, limits=limits, queue=PATIENT
    ) as context:
        yield context


@pytest.fixture(params=["uvloop", "asyncio"])
def door(
    context: DoorContext, request: pytest.FixtureRequest, backend: GatedBackend
) -> Iterator[HttpDoor]:
    loop: Literal["uvloop", "asyncio"] = request.param
    with http_door(context, loop=loop) as door:
        yield door
        backend.gate.set()


@pytest.fixture
def peer(door: HttpDoor) -> Iterator[Peer]:
    with Peer(door) as peer:
        yield peer


def row_request(value: float, **more: object) -> bytes:
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [value, 0, 0, 0]}
    body = json.dumps({"id": str(value), "inputs": [tensor]}).encode()
    return infer_request(body, **more)  # type: ignore[arg-type]  # of many types


def cold_request(word: str, wait_s: float = 0.0) -> bytes:
    return f"GET /cold/{word}?wait_s={wait_s} HTTP/1.1\r\nHost: test\r\n\r\n".encode()


def score(body: bytes) -> float:
    value: float = json.loads(body)["outputs"][0]["data"][0]
    return value


def chunked(data: bytes, *sizes: int) -> bytes:
    """`data` in chunks of these sizes, over and over."""
    parts = []
    for size in itertools.cycle(sizes):
        if not data:
            break
        part, data = data[:size], data[size:]
        parts.append(b"%x;note=1\r\n%b\r\n" % (len(part), part))
    return b"".join(parts) + b"0\r\nX-Trailer: 1\r\n\r\n"


def chunked_request(request: bytes, *sizes: int) -> bytes:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    return (
        b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n" + chunked(body, *sizes)
    )


# --- order ----------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_requests_hot_and_cold_mixed(peer: Peer) -> None:
    dice = random.Random(7)
    for _ in range(10):
        kinds = [dice.choice(["hot", "cold", "slow", "wrong", "echo"]) for _ in range(6)]
        sent = []
        for place, kind in enumerate(kinds):
            if kind == "hot":
                sent.append(row_request(place))
            elif kind == "wrong":
                sent.append(row_request(place, path="/v2/models/other/infer"))
            elif kind == "echo":
                body = b"x" * (place * 40_000)
                sent.append(infer_request(body, path="/echo"))
            else:
                sent.append(cold_request(str(place), 0.02 if kind == "slow" else 0.0))
        peer.send(b"".join(sent))
        for place, kind in enumerate(kinds):
            response = peer.read()
            if kind == "hot":
                assert score(response.body) == place
            elif kind == "wrong":
                assert response.status == 404
            elif kind == "echo":
                assert response.body == f"{place * 40_000} bytes".encode()
            else:
                assert response.body == f"cold {place}".encode()


def test_a_later_answer_waits_for_an_earlier_one(peer: Peer, backend: GatedBackend) -> None:
    backend.gate.clear()
    peer.send(row_request(1) + row_request(2, path="/v2/models/other/infer") + cold_request("x"))
    peer.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        peer.read()
    peer.socket.settimeout(20)

    backend.gate.set()

    assert score(peer.read().body) == 1
    assert peer.read().status == 404
    assert peer.read().body == b"cold x"


def test_a_hot_request_computes_while_a_cold_one_before_it_waits(
    peer: Peer, backend: GatedBackend
) -> None:
    before = backend.computed
    peer.send(cold_request("slow", 0.5) + row_request(3))
    deadline = time.monotonic() + 0.4
    while backend.computed == before and time.monotonic() < deadline:
        time.sleep(0.005)
    assert backend.computed == before + 1

    assert peer.read().body == b"cold slow"
    assert score(peer.read().body) == 3


def test_many_pipelined_requests_are_held_back_and_all_answered(peer: Peer) -> None:
    count = 500
    peer.send(b"".join(row_request(place) for place in range(count)))

    for place in range(count):
        response = peer.read()
        # Within one slice of 16 KiB more may come than the limit of 8; those are refused in place.
        if response.status == 200:
            assert score(response.body) == place
        else:
            assert response.status == 503
            assert "requests of this client wait" in json.loads(response.body)["error"]
            assert response.headers["retry-after"] == "1"


def test_requests_beyond_the_limit_of_a_client_are_refused(
    peer: Peer, backend: GatedBackend, observed: Observed
) -> None:
    backend.gate.clear()
    peer.send(b"".join(row_request(place) for place in range(12)))
    time.sleep(0.1)
    backend.gate.set()

    statuses = [peer.read().status for _ in range(12)]

    assert statuses == [200] * 8 + [503] * 4
    assert observed.failures.count(("scale", "oip_http", "RESOURCE_EXHAUSTED")) == 4


# --- delivery -------------------------------------------------------------------------------------


def test_a_request_may_be_cut_anywhere(peer: Peer) -> None:
    request = row_request(5)
    for cut in range(1, len(request)):
        peer.send(request[:cut])
        if cut % 16 == 0:
            time.sleep(0.001)
        peer.send(request[cut:])

        assert score(peer.read().body) == 5


def test_requests_may_come_byte_by_byte(peer: Peer) -> None:
    for request in (row_request(6), chunked_request(row_request(7), 1), cold_request("x")):
        for place in range(len(request)):
            peer.send(request[place : place + 1])

    assert score(peer.read().body) == 6
    assert score(peer.read().body) == 7
    assert peer.read().body == b"cold x"


@pytest.mark.parametrize("sizes", [(1,), (7, 1, 40), (100_000,)])
def test_chunked_bodies_are_scored(peer: Peer, sizes: tuple[int, ...]) -> None:
    response = peer.ask(chunked_request(row_request(8), *sizes) + row_request(9))

    assert score(response.body) == 8
    assert score(peer.read().body) == 9


def test_large_bodies_come_through_whole(peer: Peer) -> None:
    rows = np.random.default_rng(3).random((60_000, 4), np.float32)
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": "x",
                    "shape": list(rows.shape),
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": rows.nbytes},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    request = infer_request(head + rows.tobytes(), json_bytes=len(head))
    expected = rows @ np.array([[1], [10], [100], [1000]], np.float32)

    for sent in (request, chunked_request(request, 8000, 100_000)):
        response = peer.ask(sent)
        size = int(response.headers["inference-header-content-length"])
        scores = np.frombuffer(response.body[size:], np.float32).reshape(-1, 1)
        assert np.allclose(scores, expected, rtol=1e-6)


# --- expectations ---------------------------------------------------------------------------------

EXPECT = {"Expect": "100-continue"}


@pytest.mark.parametrize("is_hot", [True, False])
def test_a_body_that_waits_to_be_asked_for_is_asked_for(peer: Peer, is_hot: bool) -> None:
    request = (
        row_request(1, headers=EXPECT)
        if is_hot
        else infer_request(b"abc", path="/echo", headers=EXPECT)
    )
    head, _, body = request.partition(b"\r\n\r\n")

    assert peer.ask(head + b"\r\n\r\n").status == 100

    response = peer.ask(body)
    assert response.status == 200


def test_it_is_asked_for_in_its_turn(peer: Peer, backend: GatedBackend) -> None:
    backend.gate.clear()
    head, _, body = row_request(2, headers=EXPECT).partition(b"\r\n\r\n")
    peer.send(row_request(1) + head + b"\r\n\r\n")
    peer.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        peer.read()
    peer.socket.settimeout(20)
    backend.gate.set()

    assert score(peer.read().body) == 1
    assert peer.read().status == 100
    assert score(peer.ask(body).body) == 2


def test_it_is_not_asked_for_when_it_is_there_already(peer: Peer) -> None:
    assert peer.ask(row_request(1, headers=EXPECT)).status == 200


def test_a_refused_body_is_not_asked_for(peer: Peer) -> None:
    head = row_request(1, headers={**EXPECT, "Content-Type": "text/plain"}).partition(b"\r\n\r\n")[
        0
    ]

    response = peer.ask(head + b"\r\n\r\n")

    assert (response.status, response.headers["connection"]) == (415, "close")
    assert peer.rest() == b""


# --- keeping and closing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "connection", "answered"),
    [
        ("1.1", None, None),
        ("1.1", "keep-alive", None),
        ("1.1", "close", "close"),
        ("1.0", None, "close"),
        ("1.0", "keep-alive", "keep-alive"),
    ],
)
def test_connections_are_kept_as_asked(
    peer: Peer, version: str, connection: str | None, answered: str | None
) -> None:
    headers = {} if connection is None else {"Connection": connection}
    for status, path in ((200, "/v2/models/scale/infer"), (404, "/v2/models/other/infer")):
        request = row_request(1, version=version, headers=headers, path=path)
        response = peer.ask(request)

        assert (response.status, response.headers.get("connection")) == (status, answered)
        if answered == "close":
            assert peer.rest() == b""
            return


def test_what_follows_a_last_request_is_not_answered(peer: Peer, backend: GatedBackend) -> None:
    before = backend.computed
    peer.send(row_request(1) + row_request(2, headers={"Connection": "close"}) + row_request(3))

    assert score(peer.read().body) == 1
    assert score(peer.read().body) == 2
    assert peer.rest() == b""
    assert backend.computed - before <= 2


def test_a_draining_server_closes_after_its_answers(peer: Peer, context: DoorContext) -> None:
    assert peer.ask(row_request(1)).status == 200
    context.lifecycle.advance(Phase.DRAINING)

    peer.send(row_request(2) + row_request(3))

    assert "connection" not in peer.read().headers
    response = peer.read()
    assert (score(response.body), response.headers["connection"]) == (3, "close")
    assert peer.rest() == b""


def test_a_stopping_server_answers_what_it_has(
    door: HttpDoor, peer: Peer, backend: GatedBackend
) -> None:
    with Peer(door) as idle:
        assert idle.ask(row_request(0)).status == 200
        backend.gate.clear()
        peer.send(row_request(1) + cold_request("x"))
        time.sleep(0.05)
        door.stop()
        assert idle.rest() == b""
        backend.gate.set()

        assert score(peer.read().body) == 1
        assert peer.read().body == b"cold x"
        assert peer.rest() == b""


def test_a_caller_who_leaves_is_not_computed_for(
    door: HttpDoor, backend: GatedBackend, observed: Observed
) -> None:
    backend.gate.clear()
    with Peer(door) as first:
        first.send(row_request(1))
        time.sleep(0.1)
        with Peer(door) as second:
            second.send(row_request(2) + row_request(3))
            time.sleep(0.3)  # whoever leaves sooner may only have ended its sending
        time.sleep(0.1)
        before = backend.computed
        backend.gate.set()
        assert score(first.read().body) == 1
        assert score(first.ask(row_request(4)).body) == 4

    assert backend.computed == before + 2
    assert observed.failures.count(("scale", "oip_http", "CANCELLED")) == 2


def test_a_peer_that_ends_its_sending_is_answered(
    door: HttpDoor, backend: GatedBackend, observed: Observed
) -> None:
    last = {"Connection": "close"}
    for requests, answers in (
        ([row_request(1)], [1]),
        ([row_request(1)], [1]),  # by its known head
        ([row_request(1, headers=last)], [1]),
        ([row_request(1, version="1.0")], [1]),
        ([chunked_request(row_request(1), 9)], [1]),
        ([long_request(1), row_request(2)], [0, 2]),
        ([cold_request("x", 0.2)], ["x"]),
        ([row_request(1), cold_request("x"), row_request(2)], [1, "x", 2]),
        ([row_request(1), cold_request("x", 0.2)], [1, "x"]),
    ):
        backend.hold()
        with Peer(door) as peer:
            peer.send(b"".join(requests))
            peer.socket.shutdown(socket.SHUT_WR)
            time.sleep(0.05)
            backend.gate.set()

            for answer in answers:
                response = peer.read()
                assert response.status == 200
                if isinstance(answer, str):
                    assert response.body == f"cold {answer}".encode()
                else:
                    assert score(response.body) == answer
            assert peer.rest() == b""
    assert observed.failures == []


@pytest.mark.parametrize("path", ["/v2/models/scale/infer", "/echo"])
def test_a_peer_that_ends_its_sending_too_early_is_not(
    door: HttpDoor, backend: GatedBackend, path: str
) -> None:
    request = row_request(1, path=path)
    for before in (b"", row_request(3)):
        for cut in (5, 60, len(request) - 1):
            backend.hold()
            with Peer(door) as peer:
                peer.send(before + request[:cut])
                peer.socket.shutdown(socket.SHUT_WR)
                assert peer.rest() == b""
            backend.gate.set()
            with Peer(door) as peer:
                assert score(peer.ask(row_request(2)).body) == 2


def test_an_answer_that_is_late_is_replaced_by_an_error(peer: Peer, backend: GatedBackend) -> None:
    backend.gate.clear()
    began = time.monotonic()

    response = peer.ask(row_request(1, headers={"Anabranch-Timeout-Ms": "100"}))

    assert response.status == 504
    assert time.monotonic() - began < 5
    backend.gate.set()
    assert score(peer.ask(row_request(2)).body) == 2


# --- upgrades -------------------------------------------------------------------------------------

H2C = {
    "Connection": "Upgrade, HTTP2-Settings",
    "Upgrade": "h2c",
    "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
}


def test_an_offered_upgrade_is_passed_over(peer: Peer) -> None:
    peer.send(row_request(1, headers=H2C) + row_request(2) + row_request(3, headers=H2C))

    assert [score(peer.read().body) for _ in range(3)] == [1, 2, 3]


def test_an_offered_upgrade_is_passed_over_on_cold_routes(peer: Peer) -> None:
    request = infer_request(b"x" * 100_000, path="/echo", headers=H2C)
    for cut in (10, 150, 300, 5000):
        peer.send(request[:cut])
        time.sleep(0.01)
        peer.send(request[cut:])

        assert peer.read().body == b"100000 bytes"


def test_a_tunnel_is_refused(peer: Peer) -> None:
    response = peer.ask(b"CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n")

    assert response.status == 501
    assert peer.rest() == b""


# --- heads that come again ------------------------------------------------------------------------


def test_a_head_that_comes_again_means_the_same(peer: Peer) -> None:
    sizes = [f"{place:0{10 + place % 3}}" for place in range(30)]
    requests = [row_request(float(size)) for size in sizes]
    for request in requests + requests[::-1]:
        peer.send(request[:50])
        peer.send(request[50:])
        assert peer.read().status == 200
    peer.send(b"".join(requests))
    assert [score(peer.read().body) for _ in requests] == [float(size) for size in sizes]


def test_a_known_head_may_come_in_the_middle_of_a_burst(peer: Peer) -> None:
    hot = row_request(1)
    for between in (
        cold_request("x"),
        infer_request(hot, path="/echo"),
        chunked_request(infer_request(hot, path="/echo"), 100),
        chunked_request(row_request(2), 5),
        row_request(2, headers={"X-Request-Id": "r"}),
        b"\r\n\r\n",
    ):
        for _ in range(3):
            peer.send(hot + between + hot)
            assert score(peer.read().body) == 1
            if between.strip():
                assert peer.read().status == 200
            assert score(peer.read().body) == 1


def test_a_head_in_two_pieces_teaches_nothing_about_the_one_before_it(door: HttpDoor) -> None:
    known, other = row_request(4), row_request(444.0)
    with Peer(door) as peer:
        for _ in range(2):
            assert score(peer.ask(known).body) == 4
        peer.send(known + other[:20])
        assert score(peer.read().body) == 4
        peer.send(other[20:])
        assert score(peer.read().body) == 444
    with Peer(door) as somebody_else:
        assert score(somebody_else.ask(known).body) == 4


def test_heads_with_odd_line_ends_teach_nothing_wrong(door: HttpDoor) -> None:
    body = b'{"inputs": []}\r\n\r\n'
    odd = b"POST /v2/models/scale/infer HTTP/1.1\nContent-Length: %d\n\n" % len(body) + body
    folded = row_request(3).replace(b"Host: test", b"X-Fold: a\r\n b\r\nHost: test")
    for _ in range(3):
        for data in (odd, folded, odd + row_request(3), folded + row_request(3)):
            with Peer(door) as peer:
                peer.send(data)
                assert peer.read().status in (200, 400)
        with Peer(door) as peer:
            assert score(peer.ask(row_request(3)).body) == 3


# --- long bodies ----------------------------------------------------------------------------------


def long_request(value: float, *, packed: bool = False) -> bytes:
    """20,000 rows in JSON, the last of them with this value."""
    data = [0.0] * 79_996 + [value, 0.0, 0.0, 0.0]
    tensor = {"name": "x", "shape": [20_000, 4], "datatype": "FP32", "data": data}
    body = json.dumps({"inputs": [tensor]}).encode()
    if not packed:
        return infer_request(body)
    return infer_request(gzip.compress(body, 0), headers={"Content-Encoding": "gzip"})


def test_long_bodies_are_answered_in_order_too(peer: Peer) -> None:
    for _ in range(3):
        peer.send(long_request(1) + row_request(2) + long_request(3, packed=True) + row_request(4))
        peer.send(cold_request("x") + long_request(5))

        assert json.loads(peer.read().body)["outputs"][0]["data"][-1] == 1
        assert score(peer.read().body) == 2
        assert json.loads(peer.read().body)["outputs"][0]["data"][-1] == 3
        assert score(peer.read().body) == 4
        assert peer.read().body == b"cold x"
        assert json.loads(peer.read().body)["outputs"][0]["data"][-1] == 5


def test_a_long_body_that_is_wrong_is_explained(peer: Peer) -> None:
    request = long_request(1).replace(b'"FP32"', b'"FP64"')

    response = peer.ask(request + row_request(2))

    assert response.status == 400
    assert "expected datatype FP32" in json.loads(response.body)["error"]
    assert score(peer.read().body) == 2


def test_a_caller_may_leave_while_a_long_body_is_decoded(
    door: HttpDoor, observed: Observed
) -> None:
    for _ in range(20):
        with Peer(door) as peer:
            peer.send(long_request(1) + long_request(2))
    deadline = time.monotonic() + 20
    while len(observed.failures) + len(observed.scores) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    with Peer(door) as peer:
        # That the others have left is seen when their bodies are read: until then they count.
        while (answer := peer.ask(row_request(3))).status == 503 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert score(answer.body) == 3
    codes = {code for _, _, code in observed.failures}
    assert codes <= {"CANCELLED", "RESOURCE_EXHAUSTED"}


def test_an_answer_that_cannot_be_given_ends_its_connection(
    door: HttpDoor, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as patched, Peer(door) as unlucky:
        patched.setattr(Observed, "scored", fail)
        with pytest.raises((EOFError, ConnectionResetError)):
            unlucky.ask(row_request(1))
    with Peer(door) as next_one:
        assert score(next_one.ask(row_request(2)).body) == 2


class HeldCatalog(Catalog):
    """Decoders wait for its answers while its gate is closed."""

    def __init__(self, inner: Catalog) -> None:
        self.inner = inner
        self.gate = threading.Event()
        self.asked = 0

    def resolve(self, model: str, selector: str = "") -> ServedVersion:
        if threading.current_thread().name.startswith("http-decode"):
            self.asked += 1
            assert self.gate.wait(20)
        return self.inner.resolve(model, selector)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_bodies_of_callers_who_left_are_not_decoded(
    context: DoorContext, observed: Observed
) -> None:
    catalog = HeldCatalog(context.catalog)
    with (
        http_door(replace(context, catalog=catalog)) as door,
        Peer(door) as first,
        Peer(door) as second,
    ):
        first.send(long_request(1) + long_request(2))
        until(lambda: catalog.asked == 2)
        with Peer(door) as leaver:
            leaver.send(long_request(3) * 2)
            time.sleep(0.3)
        until(lambda: len(observed.failures) == 2)
        second.send(long_request(4))
        catalog.gate.set()

        for peer, value in ((first, 1), (first, 2), (second, 4)):
            assert json.loads(peer.read().body)["outputs"][0]["data"][-1] == value
    assert catalog.asked == 3
    assert [code for _, _, code in observed.failures] == ["CANCELLED"] * 2


def test_long_bodies_beyond_the_limit_are_refused(
    context: DoorContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders, "MAX_WAITING", 1)
    catalog = HeldCatalog(context.catalog)
    with http_door(replace(context, catalog=catalog)) as door, Peer(door) as first:
        first.send(long_request(1) + long_request(2))
        until(lambda: catalog.asked == 2)
        first.send(long_request(3))
        time.sleep(0.2)
        with Peer(door) as late:
            response = late.ask(long_request(4))
            assert (response.status, response.headers["retry-after"]) == (503, "1")
            assert score(late.ask(row_request(5)).body) == 5
        catalog.gate.set()

        assert [first.read().status for _ in range(3)] == [200] * 3
