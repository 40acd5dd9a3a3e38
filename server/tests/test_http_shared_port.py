"""Real processes on one port: who gets which connection, and that none is lost on the way."""

import socket
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from anabranch_testing.http_workers import HttpWorkers, http_workers

WORKERS = 4
ASK = b"GET /who HTTP/1.1\r\nHost: test\r\n\r\n"


class Caller:
    """One kept connection.

    Attributes:
        closes: whether the last answer said that the connection ends.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.closes = False

    def send(self, path: str = "who") -> None:
        """Send a request."""
        self.socket.sendall(ASK.replace(b"who", path.encode()))

    def read(self) -> int:
        """Return the worker that answered."""
        data = b""
        while b"\r\n\r\n" not in data:
            part = self.socket.recv(4096)
            assert part, f"closed without an answer: {data!r}"
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += self.socket.recv(4096)
        self.closes = b"connection: close" in head.lower()
        return int(body.split()[0])

    def worker(self) -> int:
        """Ask which worker has the connection."""
        self.send()
        return self.read()


Call = Callable[[], Caller]


@pytest.fixture
def workers() -> Iterator[HttpWorkers]:
    with http_workers(WORKERS) as workers:
        yield workers


@pytest.fixture
def call(workers: HttpWorkers) -> Iterator[Call]:
    """Return what connects one more caller."""
    callers: list[Caller] = []

    def connect() -> Caller:
        callers.append(Caller(workers.port))
        return callers[-1]

    yield connect
    for caller in callers:
        caller.socket.close()


def spread(callers: list[Caller]) -> list[int]:
    """Return how many of `callers` each worker has."""
    for caller in callers:
        caller.send()
    counts = Counter(caller.read() for caller in callers)
    return [counts[index] for index in range(WORKERS)]


def is_even(counts: list[int]) -> bool:
    mean = sum(counts) / len(counts)
    return all(abs(count - mean) <= 1 for count in counts)


def loads(workers: HttpWorkers) -> list[int]:
    """Return what the balance page says that each worker has."""
    load, layout = workers.balance.load, workers.layout
    return [
        load(layout.open(i)) + load(layout.sent(i)) - load(layout.received(i))
        for i in range(WORKERS)
    ]


@pytest.mark.parametrize("count", [8, 32, 64])
def test_connections_that_come_one_by_one_are_spread(
    workers: HttpWorkers, call: Call, count: int
) -> None:
    callers = []
    for _ in range(count):
        callers.append(call())
        callers[-1].worker()

    counts = spread(callers)

    assert is_even(counts), counts
    assert loads(workers) == counts


@pytest.mark.parametrize("count", [8, 32, 64, 400])
def test_connections_that_come_at_once_are_spread(
    workers: HttpWorkers, call: Call, count: int
) -> None:
    callers = [call() for _ in range(count)]

    counts = spread(callers)

    assert is_even(counts), counts
    assert loads(workers) == counts


def test_what_was_sent_before_the_hand_over_is_answered(workers: HttpWorkers, call: Call) -> None:
    callers = [call() for _ in range(32)]
    for caller in callers:
        caller.socket.sendall(ASK + ASK[:20])
    answered = Counter(caller.read() for caller in callers)
    for caller in callers:
        caller.socket.sendall(ASK[20:])
    again = Counter(caller.read() for caller in callers)

    assert answered == again
    assert is_even([answered[index] for index in range(WORKERS)])


def test_connections_that_close_make_room(workers: HttpWorkers, call: Call) -> None:
    callers = [call() for _ in range(32)]
    spread(callers)
    of_first = [caller for caller in callers if caller.worker() == 0]
    for caller in of_first:
        caller.socket.close()
    others = [caller for caller in callers if caller not in of_first]
    while loads(workers)[0]:
        others[0].worker()

    callers = others + [call() for _ in range(8)]

    assert spread(callers) == [8, 8, 8, 8]


def test_the_spread_recovers_after_a_worker_was_replaced(workers: HttpWorkers, call: Call) -> None:
    callers = [call() for _ in range(32)]
    spread(callers)
    left = [caller for caller in callers if caller.worker() != 2]

    workers.kill(2)
    workers.balance.store(workers.layout.accepting(2), 0)  # as the launcher does
    meanwhile = [call() for _ in range(6)]
    assert spread(left + meanwhile) == [10, 10, 0, 10]
    workers.start(2)
    workers.wait(2)
    after = [call() for _ in range(10)]

    assert spread(left + meanwhile + after) == [10, 10, 10, 10]
    assert loads(workers) == [10, 10, 10, 10]


def test_what_was_handed_to_a_dead_worker_waits_for_the_next_one(
    workers: HttpWorkers, call: Call
) -> None:
    callers = [call() for _ in range(32)]
    spread(callers)
    left = [caller for caller in callers if caller.worker() != 2]

    workers.kill(2)  # and nobody is told
    meanwhile = [call() for _ in range(8)]
    for caller in meanwhile:
        caller.send()
    while sum(loads(workers)) < 40:
        left[0].worker()
    assert loads(workers) == [10, 10, 10, 10]
    workers.start(2)
    counts = Counter(caller.read() for caller in meanwhile)

    assert counts == {0: 2, 1: 2, 2: 2, 3: 2}
    assert spread(left + meanwhile) == [10, 10, 2, 10] == loads(workers)


def test_a_worker_that_leaves_gets_no_more_connections(workers: HttpWorkers, call: Call) -> None:
    callers = [call() for _ in range(8)]
    spread(callers)
    workers.stop(3)
    output = workers.processes[3].stdout
    assert output is not None
    assert output.read() == b""

    assert spread([call() for _ in range(6)]) == [2, 2, 2, 0]


def test_a_worker_that_has_too_long_a_queue_sends_clients_elsewhere(
    workers: HttpWorkers, call: Call
) -> None:
    callers = [call() for _ in range(16)]
    spread(callers)
    (first, *others) = [caller for caller in callers if caller.worker() == 1]
    first.send("queue/40")
    first.read()
    closed: list[Caller] = []
    while not closed:
        for caller in others:
            assert caller.worker() == 1
        closed = [caller for caller in others if caller.closes]
    again = call()

    assert len(closed) == 1
    assert closed[0].socket.recv(1) == b""
    assert again.worker() != 1
    first.send("queue/0")
    first.read()


def test_old_connections_close_after_an_answer() -> None:
    with http_workers(1, max_age_s=2.0) as workers:
        caller, rests = Caller(workers.port), Caller(workers.port)
        answers = 0
        while not caller.closes:
            caller.worker()
            answers += 1
        assert answers > 1
        assert caller.socket.recv(1) == b""
        # Age cuts nobody: who was silent for all its life still gets an answer.
        while not rests.closes:
            assert rests.worker() == 0
        for one in (caller, rests):
            one.socket.close()
