import array
import asyncio
import gc
import logging
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import uvloop

from anabranch_server.processes.channel import MAX_WAITING, Channel, ChannelClosed, Received, pair
from anabranch_server.processes.message import Message
from anabranch_server.processes.messages import (
    Abort,
    Ack,
    Attached,
    CannotPrepare,
    FromLauncher,
    FromSupervisor,
    FromWorker,
    HeldModel,
    Hello,
    NewSupervisor,
    Ping,
    Pong,
    Prepare,
    Released,
)
from anabranch_server.processes.packets import (
    INLINE_BYTES,
    MAX_DESCRIPTORS,
    close_all,
    sealed_memory,
)
from anabranch_server.processes.plans import GenerationPlan
from anabranch_testing.mutations import fuzz_cases, mutated
from anabranch_testing.workers import state_of
from anabranch_wire.errors import Corrupt

LONG = "x" * (INLINE_BYTES + 1)


def open_fds() -> set[tuple[str, str]]:
    """Number and file of each open descriptor."""
    gc.collect()
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the folder's own is closed again
            found.add((path.name, str(path.readlink())))
    return found


@pytest.fixture(autouse=True, scope="module")
def _uvloop_has_its_descriptors() -> None:
    uvloop.run(asyncio.sleep(0))  # its first loop opens two that stay


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    before = open_fds()
    yield
    assert open_fds() <= before  # what another test left may be closed meanwhile


@pytest.fixture
def ends() -> Iterator[tuple[Channel[FromWorker], Channel[FromSupervisor]]]:
    one, other = pair()
    supervisor, worker = (
        Channel[FromWorker](one, FromWorker),
        Channel[FromSupervisor](other, FromSupervisor),
    )
    yield supervisor, worker
    supervisor.close()
    worker.close()


@pytest.fixture
def raw() -> Iterator[tuple[socket.socket, Channel[FromLauncher]]]:
    """A peer that may send anything."""
    one, other = pair()
    channel = Channel[FromLauncher](other, FromLauncher)
    yield one, channel
    one.close()
    channel.close()


def with_fds(fds: list[int]) -> list[tuple[int, int, bytes]]:
    rights = array.array("i", fds).tobytes()
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if fds else []


def plain(message: Message) -> Received[Message]:
    return Received(message, [])


def inline(message: Message) -> bytes:
    return b"\0" + msgspec.msgpack.encode(message)


@pytest.mark.parametrize(
    "message",
    [
        Ping(7),
        Prepare("ctr", 3, 2**63, None),
        Abort("m" * (INLINE_BYTES - 100), 1),
        Abort(LONG, 1),
        Abort("x" * 20_000_000, 1),
    ],
    ids=["short", "wide", "inline", "memory", "huge"],
)
def test_messages_arrive_as_they_were_sent(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]], message: Message
) -> None:
    supervisor, worker = ends

    supervisor.send(message)

    received = worker.receive()
    assert received is not None
    assert received.message == message
    assert received.fds == []


@pytest.mark.parametrize("model", ["ctr", LONG], ids=["short", "long"])
def test_descriptors_come_with_their_message_and_are_not_inherited(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]], model: str
) -> None:
    supervisor, worker = ends
    read, write = os.pipe()
    worker.send(Hello(0, 1, os.getpid(), False, {}), [write])
    os.close(write)

    received = supervisor.receive()

    assert received is not None
    (fd,) = received.fds
    assert not os.get_inheritable(fd)
    os.write(fd, b"through")
    assert os.read(read, 100) == b"through"
    os.close(fd)
    os.close(read)


def test_the_end_is_none_after_the_last_message(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]],
) -> None:
    supervisor, worker = ends
    worker.send(Pong(1))
    supervisor.send(Ping(1))
    worker.close()  # leaves a Ping unread, which the kernel reports before the Pong

    assert supervisor.receive() == plain(Pong(1))
    assert supervisor.receive() is None
    assert supervisor.receive() is None


def test_sending_to_a_dead_peer_says_so_and_what_it_said_is_still_read(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]],
) -> None:
    supervisor, worker = ends
    worker.send(Pong(1))
    worker.close()

    with pytest.raises(ChannelClosed, match="Broken pipe"):
        supervisor.send(Ping(1))
    with pytest.raises(ChannelClosed, match="Broken pipe"):
        supervisor.send(Ping(2))
    assert supervisor.receive() == plain(Pong(1))
    assert supervisor.receive() is None


def test_nothing_is_sent_through_a_closed_channel(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]],
) -> None:
    ends[0].close()

    with pytest.raises(ChannelClosed, match="this end was closed"):
        ends[0].send(Ping(1))
    assert ends[0].receive() is None


def test_the_wrong_number_of_descriptors_is_not_sent(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]],
) -> None:
    with pytest.raises(ValueError, match="Ping has 0 descriptors, not 1"):
        ends[0].send(Ping(1), [0])


def fill(channel: Channel[FromWorker], make: Callable[[int], Message]) -> int:
    """Send until the bound is met, and return how many were taken."""
    for number in range(100_000):
        try:
            channel.send(make(number))
        except ChannelClosed:
            return number
    raise AssertionError("there is no bound")


def test_a_peer_that_does_not_read_is_given_up_after_a_bound_and_nothing_waits_for_it(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]],
) -> None:
    supervisor, worker = ends

    sent = fill(supervisor, lambda number: Abort(LONG, number))

    assert sent >= MAX_WAITING
    with pytest.raises(ChannelClosed, match="the peer has not read 256 messages"):
        supervisor.send(Ping(1))
    # What the kernel had is there, in order, and then the end.
    got = 0
    while received := worker.receive():
        assert received.message == Abort(LONG, got)
        got += 1
    assert got == sent - MAX_WAITING


def test_messages_that_waited_arrive_in_order_with_descriptors_closed_meanwhile(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]],
) -> None:
    supervisor, worker = ends
    count = MAX_WAITING // 2
    got: list[tuple[int, bytes]] = []

    def read_all() -> None:
        while len(got) < count:
            received = supervisor.receive()
            assert received is not None
            assert isinstance(received.message, Hello)
            got.append((received.message.index, os.pread(received.fds[0], 10, 0)))
            os.close(received.fds[0])

    models = {LONG[:50_000]: HeldModel(0, (1,), None)}
    for number in range(count):
        fd = sealed_memory("test", str(number).encode())
        worker.send(Hello(number, 1, 1, False, models), [fd])
        os.close(fd)
    reader = threading.Thread(target=read_all)
    reader.start()
    assert worker.flush(timeout_s=30)
    reader.join()

    assert got == [(number, str(number).encode()) for number in range(count)]


def test_a_blocked_receiver_writes_what_waits(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]],
) -> None:
    supervisor, worker = ends
    count = MAX_WAITING
    text = "e" * (INLINE_BYTES // 2)

    def answer() -> None:
        for _ in range(count):
            assert supervisor.receive() is not None
        supervisor.send(Ping(5))

    for number in range(count):
        worker.send(CannotPrepare("m", number, "InvalidInput", text))
    peer = threading.Thread(target=answer)
    peer.start()

    received = worker.receive()

    peer.join()
    assert received == plain(Ping(5))


def test_flush_says_when_the_peer_did_not_read_in_time(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]],
) -> None:
    supervisor, _ = ends
    assert supervisor.flush(timeout_s=0)
    for number in range(MAX_WAITING):
        supervisor.send(Abort("m" * (INLINE_BYTES // 2), number))

    assert not supervisor.flush(timeout_s=0.01)


def prepare(generations: int) -> Prepare:
    """A message that brings two descriptors for each of so many generations."""
    plans = tuple(GenerationPlan(number, number, 1) for number in range(1, generations + 1))
    return Prepare("m", 0, 1, msgspec.structs.replace(state_of(), generations=plans))


@pytest.mark.parametrize("generations", [0, 1, 3, (MAX_DESCRIPTORS - 1) // 2])
def test_a_message_brings_as_many_descriptors_as_it_speaks_of(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]], generations: int
) -> None:
    supervisor, worker = ends
    message = prepare(generations)
    memories = [sealed_memory("test", bytes([at])) for at in range(2 * generations)]

    supervisor.send(message, memories)

    received = worker.receive()
    assert received is not None
    assert received.message == message
    assert [os.pread(fd, 1, 0)[0] for fd in received.fds] == list(range(2 * generations))
    close_all(memories)
    close_all(received.fds)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_other_descriptors_than_a_message_speaks_of_are_neither_sent_nor_taken(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]], count: int
) -> None:
    supervisor, _ = ends
    with open(os.devnull) as null:
        with pytest.raises(ValueError, match=f"has 2 descriptors, not {count}"):
            supervisor.send(prepare(1), [null.fileno()] * count)
        one, other = pair()
        channel = Channel[FromSupervisor](other, FromSupervisor)
        one.sendmsg([inline(prepare(1))], with_fds([null.fileno()] * count))
        with pytest.raises(Corrupt, match=f"expected 2 descriptors, got {count}"):
            channel.receive()
        one.close()


MALFORMED = {
    "nothing known": (b"\2", 0, "begins with"),
    "no msgpack": (b"\0\xc1", 0, "none of the expected messages"),
    "cut short": (inline(NewSupervisor())[:-3], 0, "none of the expected messages"),
    "of another channel": (inline(Ping(1)), 0, "none of the expected messages"),
    "an unknown field": (
        b"\0" + msgspec.msgpack.encode({"type": "Drain", "x": 1}),
        0,
        "none of the expected messages",
    ),
    "a descriptor is missing": (inline(NewSupervisor()), 0, "expected 1 descriptors, got 0"),
    "a descriptor too many": (inline(NewSupervisor()), 2, "expected 1 descriptors, got 2"),
    "far too many": (inline(NewSupervisor()), MAX_DESCRIPTORS + 1, "more than"),
    "too long": (b"\0" + b"x" * INLINE_BYTES + b"x", 0, "more than"),
    "memory without memory": (b"\1", 0, "begins with"),
    "memory that is a file": (b"\1", 1, "cannot be read"),
}


@pytest.mark.parametrize(("packet", "count", "why"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_packet_closes_the_channel_and_its_descriptors(
    raw: tuple[socket.socket, Channel[FromLauncher]], packet: bytes, count: int, why: str
) -> None:
    peer, channel = raw
    with open(os.devnull) as null:
        peer.sendmsg([packet], with_fds([null.fileno()] * count))

    with pytest.raises(Corrupt, match=why):
        channel.receive()

    assert channel.receive() is None
    assert peer.recv(1) == b""


@pytest.mark.parametrize(
    ("body", "sealed", "why"),
    [
        (b"\xc1", True, "none of the expected"),
        (b"", True, "has 0 bytes"),
        (msgspec.msgpack.encode(NewSupervisor()), False, "not sealed"),
        (msgspec.msgpack.encode(NewSupervisor()), True, "expected 1 descriptors, got 0"),
    ],
)
def test_a_malformed_long_message_closes_the_channel(
    raw: tuple[socket.socket, Channel[FromLauncher]], body: bytes, sealed: bool, why: str
) -> None:
    peer, channel = raw
    if sealed:
        memory = sealed_memory("test", body)
    else:
        memory = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.write(memory, body)
    peer.sendmsg([b"\1"], with_fds([memory]))
    os.close(memory)

    with pytest.raises(Corrupt, match=why):
        channel.receive()


class Told:
    """What a channel in a loop said."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.messages: list[Message] = []
        self.closed = loop.create_future()
        self.changed = asyncio.Event()

    def on_message(self, message: Message, fds: list[int]) -> None:
        self.messages.append(message)
        for fd in fds:
            os.close(fd)
        self.changed.set()

    def on_closed(self) -> None:
        self.closed.set_result(None)

    async def count(self, wanted: int) -> None:
        while len(self.messages) < wanted:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 10)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        yield runner


def test_in_a_loop_messages_are_delivered_in_order_and_the_end_follows_them(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]], run: asyncio.Runner
) -> None:
    supervisor, worker = ends

    async def talk() -> None:
        loop = asyncio.get_running_loop()
        above, below = Told(loop), Told(loop)
        supervisor.attach(loop, above.on_message, above.on_closed)
        worker.attach(loop, below.on_message, below.on_closed)
        for number in range(MAX_WAITING):  # more than the kernel keeps
            supervisor.send(Prepare("m" * 30_000, 0, number, None))
            worker.send(Ack("m" * 30_000, number, 1))
        await below.count(MAX_WAITING)
        await above.count(MAX_WAITING)
        worker.close()
        await asyncio.wait_for(above.closed, 10)
        assert not below.closed.done()
        assert [m.epoch for m in below.messages if isinstance(m, Prepare)] == [*range(MAX_WAITING)]
        assert [m.epoch for m in above.messages if isinstance(m, Ack)] == [*range(MAX_WAITING)]

    run.run(talk())


def test_in_a_loop_a_malformed_packet_is_logged_and_ends_the_channel(
    raw: tuple[socket.socket, Channel[FromLauncher]],
    run: asyncio.Runner,
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer, channel = raw

    async def talk() -> None:
        told = Told(asyncio.get_running_loop())
        channel.attach(asyncio.get_running_loop(), told.on_message, told.on_closed)
        peer.sendmsg([inline(NewSupervisor())], with_fds([peer.fileno()]))
        peer.send(b"\7")
        peer.send(inline(Ping(1)))
        await asyncio.wait_for(told.closed, 10)
        assert told.messages == [NewSupervisor()]

    with caplog.at_level(logging.ERROR):
        run.run(talk())
    assert [record.__dict__["event"] for record in caplog.records] == ["bad_packet"]


def test_in_a_loop_a_peer_that_does_not_read_ends_the_channel(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]], run: asyncio.Runner
) -> None:
    supervisor, worker = ends
    worker.send(Pong(3))

    async def talk() -> None:
        told = Told(asyncio.get_running_loop())
        supervisor.attach(asyncio.get_running_loop(), told.on_message, told.on_closed)
        fill(supervisor, lambda number: Abort("m" * 30_000, number))
        await asyncio.wait_for(told.closed, 10)
        assert told.messages == [Pong(3)]

    run.run(talk())


def test_a_detached_channel_keeps_what_comes_for_the_next_who_asks(
    ends: tuple[Channel[FromWorker], Channel[FromSupervisor]], run: asyncio.Runner
) -> None:
    supervisor, worker = ends

    async def talk() -> None:
        told = Told(asyncio.get_running_loop())

        def once(message: FromWorker, fds: list[int]) -> None:
            told.on_message(message, fds)
            supervisor.detach()

        supervisor.attach(asyncio.get_running_loop(), once, told.on_closed)
        worker.send(Pong(1))
        worker.send(Pong(2))
        await told.count(1)

    run.run(talk())
    assert supervisor.receive() == plain(Pong(2))


def test_whatever_comes_is_a_message_or_refused() -> None:
    seeds = [
        msgspec.msgpack.encode(message)
        for message in (
            Attached(1, 2, 3, 4.5),
            Hello(0, 1, 2, True, {}),
            Prepare("ctr", 1, 2, None, urgent=True),
            Ack("ctr", 2**64 - 1, 1),
            Released("ctr", 5),
        )
    ]
    tokens = [bytes([byte]) for byte in range(128, 256)] + [b"type", b"Hello", b"\xdb\xff\xff\xff"]
    dice = random.Random(1)
    before = open_fds()
    with open(os.devnull) as null:
        for body in mutated(seeds, tokens, min(fuzz_cases(), 20_000)):
            peer, other = pair()
            channel = Channel[Message](other, FromLauncher | FromSupervisor | FromWorker)
            fds = [null.fileno()] * dice.choice((0, 0, 1, 2, 3))
            if dice.random() < 0.3:
                fds.append(sealed_memory("fuzz", body))
                packet = dice.choice((b"\1", b"\1\1"))
            else:
                packet = dice.choice((b"\0", b"\0", b"\0", b"\3")) + body[:INLINE_BYTES]
            peer.sendmsg([packet], with_fds(fds))
            if fds and fds[-1] != null.fileno():
                os.close(fds[-1])
            try:
                received = channel.receive()
            except Corrupt:
                pass
            else:
                assert received is not None
                assert len(received.fds) == received.message.descriptors
                for fd in received.fds:
                    os.close(fd)
            peer.close()
            channel.close()
    assert open_fds() == before
