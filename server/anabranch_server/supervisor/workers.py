"""The worker processes: who is there, what they say, how they end.

A worker is dead when its pidfd says so, never because its channel closed: until then it may answer
requests and read shared memory.
"""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from anabranch_runtime.counters import CountersReader, Series
from anabranch_server.metrics.totals import EXITED, Totals
from anabranch_server.processes.board import MODEL_SLOTS
from anabranch_server.processes.channel import MAX_WAITING, Channel, ChannelClosed
from anabranch_server.processes.message import Message
from anabranch_server.processes.messages import (
    Ack,
    Attached,
    CannotPrepare,
    FromWorker,
    Hello,
    Opened,
    Ping,
    Pong,
    Refreshed,
    Released,
    SetLog,
    Stats,
    Traced,
)
from anabranch_server.supervisor.effects import KillReason, WorkerId
from anabranch_server.supervisor.pulse import PING_S, Pulse
from anabranch_server.supervisor.tracing import Recording
from anabranch_wire.errors import Corrupt

__all__ = ["Attendant", "Pool", "Worker"]

_log = logging.getLogger(__name__)

_START_S: Final = 60.0
"""How long after its start a worker may take to say hello."""

_LEAVE_S: Final = 2.0
"""How long a worker that closed its channel may take to end by itself."""


_MAX_WAITING: Final = MODEL_SLOTS + MAX_WAITING
"""Who joins is told of every model at once."""


class Attendant(Protocol):
    """Is told of workers, in the order in which things happen. Event loop."""

    def greeted(self, worker: WorkerId, hello: Hello) -> None:
        """A worker said what it has."""
        ...

    def answered(self, worker: WorkerId, message: Ack | CannotPrepare | Released) -> None:
        """A worker answered, or released what it read."""
        ...

    def lost(self, worker: WorkerId) -> None:
        """The death of a worker is certain."""
        ...


@dataclass(slots=True, eq=False)
class Worker:
    """One life of a worker process. Read by others, changed by its pool alone.

    Attributes:
        id: index and incarnation.
        pid: its process.
        started: seconds since 1970.
        channel: to it.
        pidfd: tells its death.
        hello_by_s: when it has to have said hello, on the loop's clock.
        counters: what it counts; None until it said hello.
        ending: why it was killed, from then on.
        is_open: whether its doors are open.
    """

    id: WorkerId
    pid: int
    started: float
    channel: Channel[FromWorker]
    pidfd: int
    hello_by_s: float
    counters: CountersReader | None = None
    ending: KillReason | None = None
    is_open: bool = False

    def read_counters(self) -> list[Series]:
        """Return what it counted up to now, also after its death."""
        if self.counters is None:
            return []
        try:
            return self.counters.read()
        except Corrupt as error:
            _log.error(
                "worker %d: %s",
                self.id.index,
                error.message,
                extra={"event": "counters_damaged", "index": self.id.index},
            )
            return []


class Pool:
    """Every worker that lives. Belongs to the event loop that runs when it is made.

    Args:
        attendant: is told what happens.
        totals: keeps what dead workers counted.
        silence_s: how long a worker may owe the answer to a ping.

    Attributes:
        recording: is told of traces that workers answer with, and of their deaths.
    """

    def __init__(self, attendant: Attendant, totals: Totals, silence_s: float) -> None:
        self._attendant = attendant
        self._totals = totals
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._workers: dict[WorkerId, Worker] = {}
        self._pulse = Pulse()
        self._tick: asyncio.TimerHandle | None = None
        self._log_change: SetLog | None = None
        self._stale: set[WorkerId] = set()
        self._fresh = asyncio.Event()
        self._round = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self._is_draining = False
        self.recording: Recording | None = None

    # --- who is there ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Worker]:
        """Iterate over the living, by index."""
        return iter(sorted(self._workers.values(), key=lambda worker: worker.id))

    def __len__(self) -> int:
        """Number of the living."""
        return len(self._workers)

    def unheard(self) -> AbstractSet[WorkerId]:
        """Return the living that have not said hello yet, also those that were killed."""
        return {one.id for one in self._workers.values() if one.counters is None}

    def pids(self) -> dict[WorkerId, int]:
        """Return every worker that said hello, with its process."""
        return {one.id: one.pid for one in self._workers.values() if one.counters is not None}

    def attach(self, told: Attached, channel: int, pidfd: int) -> None:
        """Take a worker that was started; owns both descriptors from now on."""
        # One that ran before this supervisor did has nothing to do but to answer.
        patience_s = max(self._silence_s, _START_S - max(0.0, time.time() - told.started))
        worker = Worker(
            WorkerId(told.index, told.incarnation),
            told.pid,
            told.started,
            Channel(socket.socket(fileno=channel), FromWorker, _MAX_WAITING),
            pidfd,
            self._loop.time() + patience_s,
        )
        self._workers[worker.id] = worker
        self._empty.clear()
        self._totals.started(told.index, told.incarnation)
        worker.channel.attach(
            self._loop,
            lambda message, fds: self._received(worker, message, fds),
            lambda: self._closed(worker),
        )
        self._loop.add_reader(pidfd, self._died, worker)
        if self._tick is None:
            self._beat()

    def drain(self) -> None:
        """Take it as it should be that workers leave, from now on."""
        self._is_draining = True

    async def wait_empty(self) -> None:
        """Return when no worker lives any more."""
        await self._empty.wait()

    # --- what is said ---------------------------------------------------------------------------

    def send(self, worker: WorkerId, message: Message, fds: Sequence[int] = ()) -> None:
        """Say something to a worker; nothing happens where it is gone.

        Args:
            worker: whom.
            message: what.
            fds: the descriptors of the message; they stay the caller's.
        """
        known = self._workers.get(worker)
        if known is not None:
            with suppress(ChannelClosed):  # noticed when it closes
                known.channel.send(message, fds)

    def set_log(self, change: SetLog) -> None:
        """Change what is logged, in workers that come later too."""
        before = self._log_change or SetLog()
        access = before.access if change.access is None else change.access
        self._log_change = SetLog(change.level or before.level, access)
        for worker in self._workers.values():
            if worker.counters is not None:
                self.send(worker.id, change)

    async def refresh(self, limit_s: float) -> None:
        """Have the gauges of all workers brought up to date, as far as `limit_s` lets them."""
        self._round += 1
        self._stale = {one.id for one in self._workers.values() if one.counters is not None}
        self._fresh = fresh = asyncio.Event()
        for worker in list(self._stale):
            self.send(worker, Stats(self._round))
        if self._stale:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await fresh.wait()

    def kill(self, worker: WorkerId, reason: KillReason, why: str) -> None:
        """End a worker; that it is dead is seen later. A second reason does not count."""
        known = self._workers.get(worker)
        if known is None or known.ending is not None:
            return
        known.ending = reason
        _log.error(
            "worker %d is ended: %s",
            worker.index,
            why,
            extra={"event": "worker_killed", "index": worker.index, "reason": reason},
        )
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(known.pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Let go of everything; workers that live see the end of their channel."""
        if self._tick is not None:
            self._tick.cancel()
        for worker in self._workers.values():
            self._let_go(worker)
        self._workers.clear()

    # --- what happens ---------------------------------------------------------------------------

    def _received(self, worker: Worker, message: FromWorker, fds: list[int]) -> None:
        try:
            match message:
                case Hello():
                    self._greet(worker, message, fds[0])
                case Opened():
                    worker.is_open = True
                case Pong(number):
                    self._pulse.answer(worker.id, number)
                case Refreshed(number):
                    if number == self._round:
                        self._refreshed(worker.id)
                case Traced():
                    if self.recording is not None:
                        self.recording.take(worker.id, message)
                case _:
                    self._attendant.answered(worker.id, message)
        finally:
            for fd in fds:
                os.close(fd)

    def _greet(self, worker: Worker, hello: Hello, page: int) -> None:
        identity = worker.id
        if (hello.index, hello.incarnation) != (identity.index, identity.incarnation):
            self.kill(identity, "malformed", "it says that it is another worker")
            return
        try:
            worker.counters = CountersReader(page)
        except (Corrupt, OSError) as error:
            self.kill(identity, "malformed", f"its counters cannot be read: {error}")
            return
        worker.is_open = hello.is_open
        self._pulse.greet(identity)
        if self._log_change is not None:
            self.send(identity, self._log_change)
        self._attendant.greeted(identity, hello)

    def _refreshed(self, worker: WorkerId) -> None:
        self._stale.discard(worker)
        if not self._stale:
            self._fresh.set()

    def _closed(self, worker: Worker) -> None:
        """A worker closes its channel when it leaves, or when it is broken."""
        if not self._is_draining:
            why = "it closed its channel and does not end"
            self._loop.call_later(_LEAVE_S, self.kill, worker.id, "closed_channel", why)

    def _died(self, worker: Worker) -> None:
        self._let_go(worker)
        del self._workers[worker.id]
        self._pulse.forget(worker.id)
        self._refreshed(worker.id)
        if self.recording is not None:
            self.recording.lose(worker.id)
        index, reason = worker.id.index, worker.ending or EXITED
        self._totals.ended(index, reason, worker.read_counters())
        if not self._is_draining:
            _log.error(
                "worker %d is dead",
                index,
                extra={"event": "worker_died", "index": index, "reason": reason},
            )
        self._attendant.lost(worker.id)
        if not self._workers:
            self._empty.set()

    def _let_go(self, worker: Worker) -> None:
        self._loop.remove_reader(worker.pidfd)
        os.close(worker.pidfd)
        worker.channel.close()

    def _beat(self) -> None:
        """Ping everyone, and end those who are taken for hung."""
        now_s = self._loop.time()
        self._tick = self._loop.call_later(PING_S, self._beat)
        number = self._pulse.beat(now_s)
        for worker in list(self._workers.values()):
            if worker.counters is not None:
                self.send(worker.id, Ping(number))
            elif now_s > worker.hello_by_s and not self._is_draining:
                self.kill(worker.id, "unresponsive", "it has never said hello")
        if not self._is_draining:
            for identity, silent_s in list(self._pulse.silent(self._silence_s)):
                why = f"it has not answered for {silent_s:.0f} s"
                self.kill(identity, "unresponsive", why)
