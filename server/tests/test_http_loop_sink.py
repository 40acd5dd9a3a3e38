import asyncio
import threading
from typing import cast

from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_server.http import LoopSink
from anabranch_server.http.loop_sink import LoopTicket, Settled

REQUEST = ScoreRequest((), 0, (), 0.0)
VERSION = cast(ServedVersion, None)


class Connection:
    def __init__(self) -> None:
        self.flushed: list[int] = []
        self.settled = 0
        self.fault: Exception | None = None
        self.is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True

    def flush(self) -> None:
        self.flushed.append(self.settled)
        if self.fault is not None:
            raise self.fault


class CountedTicket(LoopTicket):
    __slots__ = ("connection", "thread")

    def __init__(self, sink: LoopSink, connection: Connection, *, waits: bool = True) -> None:
        super().__init__(REQUEST, VERSION, sink)
        self.connection = connection
        self.cancelled = not waits
        self.thread: int | None = None

    def settle(self) -> Settled | None:
        self.thread = threading.get_ident()
        self.connection.settled += 1
        return None if self.cancelled else self.connection


class CountingLoop(asyncio.SelectorEventLoop):
    wakes = 0

    def call_soon_threadsafe(self, *args: object, **kwargs: object) -> asyncio.Handle:
        self.wakes += 1
        return super().call_soon_threadsafe(*args, **kwargs)  # type: ignore[arg-type]  # of many types


def deliver_from_threads(sink: LoopSink, groups: list[list[CountedTicket]]) -> None:
    threads = [
        threading.Thread(target=sink.deliver, args=(cast(list[Ticket], group),)) for group in groups
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_many_tickets_wake_the_loop_once_and_flush_each_connection_once() -> None:
    loop = CountingLoop()
    sink = LoopSink(loop)
    first, second = Connection(), Connection()
    groups = [[CountedTicket(sink, first), CountedTicket(sink, second)] for _ in range(10)]

    deliver_from_threads(sink, groups)
    assert loop.wakes == 1
    loop.run_until_complete(asyncio.sleep(0))
    deliver_from_threads(sink, groups[:1])
    loop.run_until_complete(asyncio.sleep(0))

    assert loop.wakes == 2
    assert first.flushed == second.flushed == [10, 11]
    assert {ticket.thread for group in groups for ticket in group} == {threading.get_ident()}
    loop.close()


def test_tickets_that_nobody_waits_for_flush_nothing() -> None:
    loop = CountingLoop()
    sink = LoopSink(loop)
    connection = Connection()

    deliver_from_threads(sink, [[CountedTicket(sink, connection, waits=False)]])
    loop.run_until_complete(asyncio.sleep(0))

    assert (connection.settled, connection.flushed) == (1, [])
    loop.close()


def test_a_connection_that_fails_does_not_keep_others_waiting() -> None:
    loop = CountingLoop()
    sink = LoopSink(loop)
    broken, sound = Connection(), Connection()
    broken.fault = RuntimeError("broken")

    deliver_from_threads(sink, [[CountedTicket(sink, broken), CountedTicket(sink, sound)]])
    loop.run_until_complete(asyncio.sleep(0))

    assert sound.flushed == [1]
    assert (broken.is_given_up, sound.is_given_up) == (True, False)
    loop.close()


def test_a_closed_loop_takes_tickets_and_forgets_them() -> None:
    loop = CountingLoop()
    sink = LoopSink(loop)
    loop.close()
    connection = Connection()

    for _ in range(2):
        deliver_from_threads(sink, [[CountedTicket(sink, connection)]])

    assert connection.settled == 0
