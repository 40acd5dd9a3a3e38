"""Worker processes that only exist: the test speaks for them, the kernel says when they die."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping

from anabranch_runtime.counters import CountersPage
from anabranch_server.processes.channel import Channel, pair
from anabranch_server.processes.message import Message
from anabranch_server.processes.messages import (
    Ack,
    Attached,
    FromSupervisor,
    HeldModel,
    Hello,
    Ping,
    Pong,
    Prepare,
    Refreshed,
    Stats,
)
from anabranch_server.processes.packets import close_all
from anabranch_server.supervisor.workers import Pool

__all__ = ["StandIn", "until"]


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until something is so."""
    while not condition():  # noqa: ASYNC110 - what happens elsewhere sets no event of ours
        await asyncio.sleep(0.01)


class StandIn:
    """A process that sleeps, and the worker's end of its channel. One event loop.

    Pings and Stats are answered at once, until `is_deaf`.

    Args:
        index: number of the worker.
        incarnation: of it.

    Attributes:
        heard: every other message, in its order.
        fds: epoch -> descriptors that came to prepare it.
        on_message: called with each of them.
        is_deaf: whether nothing is read or answered.
        page: its counters.
    """

    def __init__(self, index: int, incarnation: int = 1) -> None:
        self.index = index
        self.incarnation = incarnation
        self.heard: list[Message] = []
        self.fds: dict[int, list[int]] = {}
        self.on_message: Callable[[Message], None] = lambda message: None
        self.is_deaf = False
        self.page = CountersPage.create(1 << 20)
        self._changed = asyncio.Event()
        self.process = subprocess.Popen(["sleep", "600"])
        self._pidfd = os.pidfd_open(self.process.pid)

    def attach(self, pool: Pool, *, age_s: float = 0.0) -> None:
        """Bring it together with the supervisor's end, as a launcher does.

        Args:
            pool: takes that end.
            age_s: how long it has run already.
        """
        ours, theirs = pair()
        told = Attached(self.index, self.incarnation, self.process.pid, time.time() - age_s)
        pool.attach(told, theirs.detach(), os.dup(self._pidfd))
        self._channel: Channel[FromSupervisor] = Channel(ours, FromSupervisor)
        self._channel.attach(asyncio.get_running_loop(), self._received, lambda: None)

    def greet(
        self, *, is_open: bool = False, models: Mapping[str, HeldModel] | None = None
    ) -> None:
        """Say hello."""
        hello = Hello(self.index, self.incarnation, self.process.pid, is_open, models or {})
        self._channel.send(hello, [self.page.fd])

    def say(self, message: Message) -> None:
        """Say something else."""
        self._channel.send(message)

    def prepare_all(self) -> None:
        """Acknowledge every Prepare at once from now on."""

        def acknowledge(message: Message) -> None:
            if isinstance(message, Prepare):
                self.say(Ack(message.model, message.epoch, self.incarnation))

        self.on_message = acknowledge

    async def hear(self, kind: type[Message]) -> Message:
        """Wait for a message of a kind and return it; it is taken from `heard`."""
        while True:
            for index, message in enumerate(self.heard):
                if isinstance(message, kind):
                    return self.heard.pop(index)
            self._changed.clear()
            await self._changed.wait()

    def hang_up(self) -> None:
        """Close the channel, as a process that is broken may do."""
        self._channel.close()

    def die(self) -> None:
        """Kill the process."""
        self.process.send_signal(signal.SIGKILL)

    async def wait_dead(self) -> None:
        """Wait until somebody has killed it."""
        await asyncio.to_thread(self.process.wait, 30)

    def close(self) -> None:
        """Leave nothing behind."""
        self.die()
        self.process.wait()
        for fds in self.fds.values():
            close_all(fds)
        os.close(self._pidfd)
        if hasattr(self, "_channel"):
            self._channel.close()

    def _received(self, message: FromSupervisor, fds: list[int]) -> None:
        if self.is_deaf:
            return
        match message:
            case Ping(number):
                self.say(Pong(number))
            case Stats(number):
                self.say(Refreshed(number))
            case _:
                if isinstance(message, Prepare):
                    close_all(self.fds.pop(message.epoch, []))
                    self.fds[message.epoch] = fds
                self.heard.append(message)
                self.on_message(message)
                self._changed.set()
