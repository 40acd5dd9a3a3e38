"""One acceptor in this process: what it does when there is no room for connections."""

import asyncio
import errno
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from anabranch_runtime.shared_words import SharedWords
from anabranch_server.http import accepting
from anabranch_server.http.accepting import Acceptor
from anabranch_server.http.siblings import Siblings
from anabranch_server.processes.board import BalanceLayout


class ShortListener(socket.socket):
    """A listener whose next `shortages` accepts find no descriptors left."""

    def __init__(self) -> None:
        super().__init__()
        self.shortages = 0
        self.was_short = asyncio.Event()

    def accept(self) -> tuple[socket.socket, object]:
        if self.shortages:
            self.shortages -= 1
            self.was_short.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@dataclass
class Port:
    """What an acceptor is given, and the connections that it kept."""

    listener: ShortListener
    siblings: Siblings
    outbox: socket.socket
    kept: list[socket.socket] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def adopt(self, connection: socket.socket) -> None:
        self.kept.append(connection)
        self.came.set()

    async def connect(self) -> None:
        """Connect, and wait until the connection is kept."""
        self.came.clear()
        _, writer = await asyncio.open_connection(*self.listener.getsockname())
        await asyncio.wait_for(self.came.wait(), 20)
        writer.close()


@pytest.fixture
def port() -> Iterator[Port]:
    layout = BalanceLayout(1)
    inbox, outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener = ShortListener()
    listener.bind(("127.0.0.1", 0))
    words = SharedWords.create(layout.words)
    port = Port(listener, Siblings(0, layout, words, inbox, {}), outbox)
    yield port
    for one in (*port.kept, inbox, outbox, listener):
        one.close()


def test_without_descriptors_connections_wait_in_the_kernel(
    port: Port, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "_REST_S", 0.2)

    async def run() -> None:
        acceptor = Acceptor(port.listener, port.siblings, port.adopt)
        acceptor.start(8)
        await port.connect()
        assert port.siblings.takes() == [True]
        port.listener.shortages = 1
        connecting = asyncio.create_task(port.connect())
        await asyncio.wait_for(port.listener.was_short.wait(), 20)
        assert port.siblings.takes() == [False]
        await connecting
        assert port.siblings.takes() == [True]
        acceptor.stop()
        assert port.siblings.takes() == [False]

    asyncio.run(run())

    assert len(port.kept) == 2
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events == ["accepting_paused"]


def test_connections_are_told_not_to_wait_for_more_to_send(port: Port) -> None:
    async def run() -> None:
        acceptor = Acceptor(port.listener, port.siblings, port.adopt)
        acceptor.start(8)
        await port.connect()
        acceptor.stop()

    asyncio.run(run())

    assert port.kept[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_what_has_come_is_taken_before_the_port_closes(port: Port) -> None:
    async def run() -> None:
        acceptor = Acceptor(port.listener, port.siblings, port.adopt)
        acceptor.start(64)
        for _ in range(40):  # nothing is accepted as long as the loop does not turn
            socket.create_connection(port.listener.getsockname()).close()
        acceptor.stop()

    asyncio.run(run())

    assert len(port.kept) == 40
    assert port.siblings.loads() == [40]


def test_nobody_left_at_the_other_end_of_the_inbox_is_no_trouble(port: Port) -> None:
    async def run() -> None:
        acceptor = Acceptor(port.listener, port.siblings, port.adopt)
        acceptor.start(8)
        port.outbox.close()
        await port.connect()
        acceptor.stop()

    asyncio.run(run())

    assert len(port.kept) == 1
