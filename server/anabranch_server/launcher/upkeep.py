"""Keeping the processes of a server running until they are to stop: what follows from what happens.

Invariants: a process that ended is reaped, and everything of it closed, before another takes its
place; a supervisor always has a channel to every worker and each worker one to it; after a stop
nothing is started any more.
"""

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final

from anabranch_server.launcher.estate import Estate
from anabranch_server.launcher.places import End, Place, Running
from anabranch_server.launcher.polling import Poller
from anabranch_server.launcher.reaping import Reaper
from anabranch_server.launcher.restarts import RestartPolicy
from anabranch_server.launcher.starts import Started, Starter
from anabranch_server.processes.channel import Channel, ChannelClosed, pair
from anabranch_server.processes.message import Message
from anabranch_server.processes.messages import (
    Attached,
    Drain,
    FromSupervisor,
    LoaderAttached,
    NewSupervisor,
    Purpose,
    StartLoader,
)
from anabranch_wire.errors import AnabranchError

__all__ = ["Upkeep"]

_log = logging.getLogger(__name__)

_TOGETHER_S: Final = 0.2
"""Signals that come within this time are one."""


class Upkeep:
    """Starts processes again until `stop`. One thread, which runs `poller`.

    Args:
        starter: starts them.
        estate: what they share.
        poller: watches over them.
        workers: how many there are to be.
        drain_s: how long they keep answering after a stop.
        policy: when a process is started again, or killed.
    """

    def __init__(
        self,
        starter: Starter,
        estate: Estate,
        poller: Poller,
        *,
        workers: int,
        drain_s: float,
        policy: RestartPolicy,
    ) -> None:
        self._starter = starter
        self._estate = estate
        self._poller = poller
        self._reaper = Reaper(poller)
        self._drain_s = drain_s
        self._policy = policy
        self._supervisor = Place("supervisor")
        self._workers = [Place("worker", index) for index in range(workers)]
        self._loaders: dict[Purpose, Place] = {
            "versions": Place("loader", 0),
            "deltas": Place("loader", 1),
        }
        self._stopping = False
        self._stopping_since_s = 0.0
        self._has_begun = False
        self.exit_code = 0

    @property
    def is_over(self) -> bool:
        """Whether everything has ended that was to end."""
        return self._stopping and not any(place.running for place in self._places())

    @property
    def pids(self) -> set[int]:
        """Processes that are looked after here."""
        return {place.running.child.pid for place in self._places() if place.running}

    def start(self) -> None:
        """Start supervisor and workers."""
        for place in (self._supervisor, *self._workers):
            self._start(place)

    def stop(self) -> None:
        """Let everything drain and end; a second time: kill everything, and exit with 1.

        Signals that come together are one: `timeout` and some shells signal the process and its
        group.
        """
        if self._stopping:
            if time.monotonic() - self._stopping_since_s >= _TOGETHER_S:
                self._kill_all()
            return
        self._stopping = True
        self._stopping_since_s = time.monotonic()
        for place in self._places():
            place.start_at_s = None
        now_s = time.monotonic()
        for place in (self._supervisor, *self._workers):
            if place.running is not None:
                self._tell(place.running, Drain())
        for worker in self._workers:
            if worker.running is not None:
                worker.running.kill_by(now_s + self._drain_s + self._policy.linger_s)
        self._end_what_is_left(now_s)

    def next_due_s(self) -> float | None:
        """Return how many seconds `tick` has nothing to do for, None where that is open."""
        due = [
            place.start_at_s if place.running is None else place.running.kill_at_s
            for place in self._places()
        ]
        times = [when for when in due if when is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def tick(self) -> None:
        """Do what is due."""
        now_s = time.monotonic()
        for place in self._places():
            running = place.running
            if running is None:
                if place.start_at_s is not None and place.start_at_s <= now_s:
                    self._start(place)
            elif running.kill_at_s is not None and running.kill_at_s <= now_s:
                _log.error(
                    "%s did not end in time and is killed",
                    place,
                    extra={"event": "process_killed", "who": str(place)},
                )
                running.kill()

    # --- starting -------------------------------------------------------------------------------

    def _start(self, place: Place) -> None:
        place.start_at_s = None
        place.incarnation += 1
        try:
            started = self._started(place)
        except (OSError, AnabranchError) as error:
            _log.error(
                "%s cannot be started: %s",
                place,
                error,
                extra={"event": "process_not_started", "who": str(place)},
            )
            self._start_later(place, life_s=0.0)
            return
        channel: Channel[FromSupervisor] | None = None
        if started.to_it is not None:
            channel = Channel[FromSupervisor](started.to_it, StartLoader)
            channel.attach(
                self._poller,
                partial(self._on_message, place),
                partial(self._on_channel_closed, place),
            )
        place.running = Running(started.child, channel, time.time(), time.monotonic())
        self._poller.add_reader(started.child.pidfd, partial(self._on_end, place, place.running))
        _log.info(
            "%s started",
            place,
            extra={
                "event": "process_started",
                "who": str(place),
                "child": started.child.pid,
                "incarnation": place.incarnation,
            },
        )
        self._introduce(place, place.running, started)

    def _started(self, place: Place) -> Started:
        if place.role == "supervisor":
            return self._starter.supervisor(place.incarnation)
        if place.role == "worker":
            return self._starter.worker(place.index, place.incarnation)
        return self._starter.loader(place.index, place.incarnation, gives_way=place.gives_way)

    def _introduce(self, place: Place, running: Running, started: Started) -> None:
        """Bring the new process together with those that it works with."""
        supervisor = self._supervisor.running
        if place.role == "supervisor":
            for worker in self._workers:
                if worker.running is not None:
                    self._join_again(running, worker, worker.running)
        elif started.to_supervisor is not None:
            with started.to_supervisor as end:
                if supervisor is None:
                    return  # it has no supervisor for now; the next one will be brought to it
                fds = (end.fileno(), running.child.pidfd)
                if place.role == "worker":
                    self._tell(supervisor, _attached(place, running), *fds)
                else:
                    purpose: Purpose = "deltas" if place.index else "versions"
                    self._tell(supervisor, LoaderAttached(running.child.pid, purpose), *fds)

    def _join_again(self, supervisor: Running, place: Place, worker: Running) -> None:
        """Bring a new supervisor together with a worker that ran before it."""
        with ExitStack() as ends:
            for_worker, for_supervisor = map(ends.enter_context, pair())
            self._tell(worker, NewSupervisor(), for_worker.fileno())
            fds = (for_supervisor.fileno(), worker.child.pidfd)
            self._tell(supervisor, _attached(place, worker), *fds)

    # --- what happens ---------------------------------------------------------------------------

    def _on_message(self, place: Place, message: FromSupervisor, fds: list[int]) -> None:
        if place is not self._supervisor:
            _log.error("%s has nothing to ask for", place, extra={"event": "bad_packet"})
        elif not self._stopping and isinstance(message, StartLoader):
            loader = self._loaders[message.purpose]
            loader.gives_way = message.gives_way
            loader.start_at_s = time.monotonic()
            if loader.running is not None:  # the supervisor has seen its end already, or gave it up
                loader.running.kill()

    def _on_channel_closed(self, place: Place) -> None:
        """It is ending, or has lost its way; in either case it is soon gone."""
        if place.running is not None and not self._stopping:
            place.running.kill_by(time.monotonic() + self._policy.linger_s)

    def _on_end(self, place: Place, running: Running) -> None:
        self._poller.remove_reader(running.child.pidfd)
        self._reaper.reap(running, partial(self._on_reaped, place, running))

    def _on_reaped(self, place: Place, running: Running, end: End) -> None:
        now_s = time.monotonic()
        place.running = None
        os.close(running.child.pidfd)
        if running.channel is not None:
            running.channel.close()
        if place.role == "worker":
            self._estate.withdraw(place.index)
        self._log_end(place, running, end)
        if place is self._supervisor:
            for loader in self._loaders.values():
                loader.start_at_s = None
                if loader.running is not None:
                    loader.running.kill()  # nobody waits for what it finds
        if self._stopping:
            self._end_what_is_left(now_s)
        elif place.role == "loader":
            place.ends = 0  # started when the supervisor asks, as at the first time
        elif end.is_failure and not self._begun(end):
            self._give_up(place, end)
        else:
            self._start_later(place, end.life_s)

    def _start_later(self, place: Place, life_s: float) -> None:
        place.ends = self._policy.ends_in_a_row(place.ends, life_s)
        place.start_at_s = time.monotonic() + self._policy.delay_s(place.ends)

    def _begun(self, end: End) -> bool:
        """Whether this server has ever come so far that a fault may pass by itself."""
        if not self._has_begun:
            self._has_begun = end.life_s >= self._policy.healthy_s or self._estate.has_served()
        return self._has_begun

    def _give_up(self, place: Place, end: End) -> None:
        """End a server that cannot start: what it said is its reason, and will not change."""
        _log.error(
            "%s ended before anything was served: the server cannot start",
            place,
            extra={"event": "cannot_start", "who": str(place), "code": end.code},
        )
        self._kill_all()

    # --- stopping -------------------------------------------------------------------------------

    def _end_what_is_left(self, now_s: float) -> None:
        """The supervisor stays until the last worker has gone, loaders as long as that."""
        if any(worker.running for worker in self._workers):
            return
        if self._supervisor.running is not None:
            self._supervisor.running.kill_by(now_s + self._policy.linger_s)
        else:
            for loader in self._loaders.values():
                if loader.running is not None:
                    loader.running.kill()

    def _kill_all(self) -> None:
        self._stopping = True
        self.exit_code = 1
        for place in self._places():
            place.start_at_s = None
            if place.running is not None:
                place.running.kill()

    def _tell(self, running: Running, message: Message, *fds: int) -> None:
        """Send, if that is still possible; otherwise its end is near and will be seen."""
        if running.channel is not None:
            try:
                running.channel.send(message, fds)
            except ChannelClosed:
                running.kill_by(time.monotonic() + self._policy.linger_s)

    def _places(self) -> Iterator[Place]:
        yield self._supervisor
        yield from self._workers
        yield from self._loaders.values()

    def _log_end(self, place: Place, running: Running, end: End) -> None:
        is_expected = end.code == 0 and self._stopping
        if place.role == "loader":
            # One without work leaves; one that has been idle is killed for a fresh one. Where a
            # version was at fault, the supervisor says so (`loader_died`).
            is_expected = end.code == 0 or end.signal == signal.SIGKILL or self._stopping
        _log.log(
            logging.INFO if is_expected else logging.WARNING,
            "%s %s",
            place,
            f"exited with {end.code}" if end.signal is None else f"got signal {end.signal}",
            extra={
                "event": "process_ended",
                "who": str(place),
                "child": running.child.pid,
                "code": end.code,
                "signal": end.signal,
                "life_s": round(end.life_s, 3),
            },
        )


def _attached(place: Place, worker: Running) -> Attached:
    return Attached(place.index, place.incarnation, worker.child.pid, worker.started)
