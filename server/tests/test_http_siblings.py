import os
import socket
from collections.abc import Iterator

import pytest

from anabranch_runtime.shared_words import SharedWords
from anabranch_server.http.siblings import Siblings
from anabranch_server.processes.board import BalanceLayout

LAYOUT = BalanceLayout(2)


class Two:
    """Two workers in one process, and what they share."""

    def __init__(self) -> None:
        self.words = SharedWords.create(LAYOUT.words)
        self.pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        self.workers = [self.worker(0), self.worker(1)]
        for worker in self.workers:
            worker.accept(willing=True)

    def worker(self, index: int) -> Siblings:
        other = 1 - index
        return Siblings(
            index, LAYOUT, self.words, self.pairs[index][0], {other: self.pairs[other][1]}
        )

    def close(self) -> None:
        for pair in self.pairs:
            for end in pair:
                end.close()


@pytest.fixture
def two() -> Iterator[Two]:
    two = Two()
    yield two
    two.close()


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, peer = socket.socketpair()
    yield ours, peer
    ours.close()
    peer.close()


def test_fresh_connections_are_counted_where_they_go(two: Two) -> None:
    first = two.workers[0]
    assert [first.place() for _ in range(4)] == [0, 1, 0, 1]
    assert first.loads() == [2, 2]


def test_what_is_passed_on_arrives_unread(
    two: Two, connection: tuple[socket.socket, socket.socket]
) -> None:
    ours, peer = connection
    first, second = two.workers
    peer.sendall(b"early")
    first.place()
    to = first.place()
    assert to == 1

    assert first.pass_on(ours, to)
    ours.close()
    taken = second.take()

    assert taken is not None
    assert not os.get_inheritable(taken.fileno())
    assert taken.recv(10) == b"early"
    assert second.take() is None
    assert first.loads() == [1, 1]
    taken.close()
    second.closed()
    assert first.loads() == [1, 0]


def test_a_full_inbox_leaves_the_connection_here(
    two: Two, connection: tuple[socket.socket, socket.socket]
) -> None:
    first, second = two.workers
    passed = 0
    while first.pass_on(connection[0], 1):
        passed += 1
        two.words.add(LAYOUT.sent(1), 1)
        assert passed < 100_000
    two.words.add(LAYOUT.sent(1), 1)  # as `place` counts it before each

    assert first.loads() == [1, passed]
    taken = 0
    while (one := second.take()) is not None:
        one.close()
        taken += 1
    assert taken == passed
    assert first.loads() == [1, passed]


def test_a_sibling_without_an_inbox_leaves_the_connection_here(
    two: Two, connection: tuple[socket.socket, socket.socket]
) -> None:
    two.pairs[1][0].close()
    two.workers[0].place()
    to = two.workers[0].place()
    assert to == 1
    assert not two.workers[0].pass_on(connection[0], to)
    assert two.workers[0].loads() == [2, 0]


def test_nobody_left_to_send_is_told(two: Two) -> None:
    two.pairs[0][1].close()
    with pytest.raises(EOFError):
        two.workers[0].take()


def test_the_next_worker_of_a_number_finds_what_waits_in_its_inbox(
    two: Two, connection: tuple[socket.socket, socket.socket]
) -> None:
    first, second = two.workers
    second.place()
    for _ in range(2):
        first.place()
    to = first.place()
    assert to == 1
    assert first.pass_on(connection[0], to)
    assert first.loads() == [2, 2]

    again = two.worker(1)  # the former one died with the connection that it had

    assert again.takes() == [True, False]
    assert again.loads() == [2, 1]
    taken = again.take()
    assert taken is not None
    taken.close()
    assert again.loads() == [2, 1]


@pytest.mark.parametrize("lost", [1, -1])
def test_what_a_death_left_miscounted_is_corrected_in_time(two: Two, lost: int) -> None:
    first, second = two.workers
    two.words.add(LAYOUT.sent(1), 5)
    for _ in range(9):
        second.check_astray()
    two.words.add(LAYOUT.sent(1), lost)  # still something happens
    for _ in range(10):
        second.check_astray()
        assert first.loads()[1] == 5 + lost
    second.check_astray()

    assert first.loads() == [0, 0]


def test_queues_are_told(two: Two) -> None:
    two.workers[0].tell_queue(7)
    assert two.workers[1].queues() == [7, 0]
