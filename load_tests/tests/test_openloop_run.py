"""The loop against a small real server that stalls, refuses, resets, closes and lies."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import pytest

from openloop import Answer, Background, HttpTransport, Plan, Result, measure, post

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nAnabranch-Model-Version: 7\r\n\r\nhello"
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
HEADS = ["Anabranch-Model-Version", "Anabranch-Delta"]

pytestmark = pytest.mark.alone


@dataclass
class Script:
    """What the server does with each request; runs in the server's loop."""

    act: Callable[["Peer", int], None]
    bodies: Counter[bytes] = field(default_factory=Counter)
    requests: int = 0
    connections: int = 0


class Peer(asyncio.Protocol):
    """One connection of the small server."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.transport: asyncio.Transport | None = None
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.script.connections += 1

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0]):
            return
        self.received = b""
        self.script.bodies[body] += 1
        self.script.requests += 1
        self.script.act(self, self.script.requests - 1)

    def answer(self, content: bytes) -> None:
        assert self.transport is not None
        self.transport.write(content)

    def cut(self) -> None:
        assert self.transport is not None
        self.transport.abort()


@contextmanager
def served(act: Callable[[Peer, int], None]) -> Iterator[tuple[str, Script]]:
    script = Script(act)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: Peer(script), "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}", script
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def load(
    address: str,
    plan: Plan,
    on_answer: Callable[[Answer], None] | None = None,
    bodies: tuple[bytes, ...] = (b"x",),
) -> Result:
    requests = [post(address, "/infer", body, {"X-A": "b"}) for body in bodies]
    return measure(plan, HttpTransport(address, HEADS), requests, on_answer)


def test_every_due_request_is_answered_and_told() -> None:
    answers: list[Answer] = []
    with served(lambda peer, _: peer.answer(GOOD)) as (address, script):
        plan = Plan(rate=500, seconds=0.2, connections=3)
        result = load(address, plan, answers.append, (b"one", b"other"))

    assert result.counts.requests == 100
    assert result.counts.outcomes == {"ok": 100}
    assert result.counts.statuses == {200: 100}
    assert result.counts.failed == 0
    assert result.opened == script.connections == 3
    assert script.bodies == {b"one": 50, b"other": 50}
    assert sorted(answer.number for answer in answers) == list(range(100))
    assert {answer.recorded for answer in answers} == {("7", None)}
    assert {answer.connection for answer in answers} == {0, 1, 2}
    assert len({answer.local_port for answer in answers}) == 3
    times = sorted(answer.due_ns for answer in answers)
    distances = {later - earlier for earlier, later in pairwise(times)}
    assert distances == {2_000_000}


def test_a_stall_is_charged_to_every_request_that_was_due_meanwhile() -> None:
    def stall(peer: Peer, number: int) -> None:
        if number == 20:
            time.sleep(0.3)
        peer.answer(GOOD)

    answers: list[Answer] = []
    with served(stall) as (address, _):
        result = load(address, Plan(rate=200, seconds=0.5, connections=1), answers.append)

    # 60 requests were due in the 300 ms; the first of them waited longest, the last hardly.
    late = [answer for answer in answers if answer.ended_ns - answer.due_ns > 100e6]
    assert len(late) >= 40
    assert result.counts.outcomes == {"ok": 100}
    assert result.counts.ok.p50_ms > 50
    assert result.counts.wait.max_ms > 200


def test_other_statuses_are_counted_apart_from_good_ones() -> None:
    with served(lambda peer, n: peer.answer(BUSY if n % 4 == 3 else GOOD)) as (address, _):
        result = load(address, Plan(rate=400, seconds=0.1, connections=2))

    assert result.counts.statuses == {200: 30, 503: 10}
    assert result.counts.outcomes == {"ok": 30, "status": 10}
    assert result.counts.latencies[503].count == 10
    assert result.counts.failed == 10


def test_cut_connections_are_resets_and_are_made_again() -> None:
    def act(peer: Peer, number: int) -> None:
        if number % 10 == 9:
            peer.answer(GOOD[:-2])
            peer.cut()
        else:
            peer.answer(GOOD)

    with served(act) as (address, script):
        result = load(address, Plan(rate=100, seconds=0.5, connections=2))

    assert result.counts.outcomes == {"ok": 45, "reset": 5}
    assert script.connections >= 6


def test_a_connection_that_closes_behind_its_answer_is_no_failure() -> None:
    def act(peer: Peer, _: int) -> None:
        peer.answer(LAST)
        assert peer.transport is not None
        peer.transport.close()

    with served(act) as (address, script):
        result = load(address, Plan(rate=100, seconds=0.3, connections=2))

    assert result.counts.outcomes == {"ok": 30}
    assert script.connections >= 30


def test_what_is_not_answered_in_time_is_a_timeout_and_costs_its_connection() -> None:
    def act(peer: Peer, number: int) -> None:
        if number:
            peer.answer(GOOD)

    answers: list[Answer] = []
    with served(act) as (address, script):
        plan = Plan(rate=50, seconds=0.4, connections=2, timeout_s=0.1)
        result = load(address, plan, answers.append)

    assert result.counts.outcomes == {"ok": 19, "timeout": 1}
    assert script.connections == 3
    lost = next(answer for answer in answers if answer.outcome == "timeout")
    assert 0.1e9 <= lost.ended_ns - lost.due_ns < 0.4e9


def test_requests_that_find_no_connection_in_their_time_are_never_sent() -> None:
    with served(lambda peer, _: None) as (address, script):
        plan = Plan(rate=100, seconds=0.3, connections=1, timeout_s=0.1, max_waiting=3)
        result = load(address, plan)

    assert result.counts.outcomes["unsent"] >= 20
    assert script.requests == result.counts.outcomes["timeout"]
    assert result.counts.requests == 30


@pytest.mark.parametrize(
    "lie",
    [
        b"SMTP hello\r\n\r\n",
        b"HTTP/1.1 two hundred\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        GOOD + b"more",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
    ],
)
def test_an_answer_that_is_none_is_malformed(lie: bytes) -> None:
    with served(lambda peer, n: peer.answer(GOOD if n else lie)) as (address, _):
        result = load(address, Plan(rate=50, seconds=0.2, connections=1))

    assert result.counts.outcomes == {"malformed": 1, "ok": 9}


def test_an_answer_may_come_in_any_pieces() -> None:
    def act(peer: Peer, number: int) -> None:
        loop = asyncio.get_running_loop()
        cut = number % len(GOOD)
        peer.answer(GOOD[:cut])
        loop.call_later(0.002, peer.answer, GOOD[cut:])

    with served(act) as (address, _):
        result = load(address, Plan(rate=200, seconds=0.5, connections=4))

    assert result.counts.outcomes == {"ok": 100}


def test_bodies_are_kept_where_they_are_asked_for() -> None:
    def act(peer: Peer, number: int) -> None:
        cut = number % len(GOOD)
        peer.answer(GOOD[:cut])
        asyncio.get_running_loop().call_later(0.002, peer.answer, GOOD[cut:])

    answers: list[Answer] = []
    with served(act) as (address, _):
        transport = HttpTransport(address, keep_bodies=True)
        plan = Plan(rate=200, seconds=0.5, connections=4)
        measure(plan, transport, [post(address, "/infer", b"x", {})], answers.append)

    assert [answer.body for answer in answers] == [b"hello"] * 100


def test_the_warm_up_is_sent_and_not_counted() -> None:
    answers: list[Answer] = []
    with served(lambda peer, _: peer.answer(GOOD)) as (address, script):
        plan = Plan(rate=100, seconds=0.3, connections=1, warm_up_s=0.2)
        result = load(address, plan, answers.append)

    assert script.requests == len(answers) == 30
    assert result.counts.requests == 10


def test_a_number_of_requests_ends_a_run() -> None:
    with served(lambda peer, _: peer.answer(GOOD)) as (address, _):
        result = load(address, Plan(rate=1000, seconds=60, connections=1, max_requests=7))

    assert result.counts.requests == 7


def test_without_a_server_there_is_an_error_and_no_figure() -> None:
    with served(lambda peer, _: None) as (address, _):
        pass
    with pytest.raises(OSError, match="no connection"):
        load(address, Plan(rate=10, seconds=1, connections=2, timeout_s=0.1))


def test_a_load_in_the_background_ends_when_it_is_told() -> None:
    answered = threading.Event()
    with served(lambda peer, _: peer.answer(GOOD)) as (address, _):
        plan = Plan(rate=100, seconds=3600, connections=2)
        requests = [post(address, "/infer", b"x", {})]
        with Background(
            plan, HttpTransport(address), requests, lambda _: answered.set()
        ) as background:
            assert answered.wait(20)
            result = background.finish()

    assert result.counts.failed == 0
    assert result.counts.requests >= 1


def test_an_error_of_a_load_in_the_background_reaches_who_waits() -> None:
    with served(lambda peer, _: None) as (address, _):
        pass
    plan = Plan(rate=10, seconds=1, connections=1, timeout_s=0.1)
    background = Background(plan, HttpTransport(address), [b"x"])

    with pytest.raises(OSError, match="no connection"), background:
        background.wait()


def test_a_loop_that_comes_late_to_its_own_requests_warns() -> None:
    def stall(answer: Answer) -> None:
        if answer.number == 5:
            time.sleep(0.2)

    with served(lambda peer, _: peer.answer(GOOD)) as (address, _):
        result = load(address, Plan(rate=200, seconds=0.5, connections=2), stall)

    assert result.counts.outcomes == {"ok": 100}
    assert any("came late" in warning for warning in result.warnings)


@pytest.mark.parametrize("name", ["rate", "seconds", "connections", "timeout_s"])
def test_a_plan_of_nothing_is_refused(name: str) -> None:
    values = {"rate": 1.0, "seconds": 1.0, "connections": 1, "timeout_s": 1.0, name: 0}
    with pytest.raises(ValueError, match=name):
        Plan(**values)  # type: ignore[arg-type]  # of many types
