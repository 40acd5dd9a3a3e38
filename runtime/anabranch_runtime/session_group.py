"""The executors of one model in one process, and the queues in front of them.

All versions of the model share the executors. A batch belongs to one version; which version a
request belongs to was decided when it was resolved and never changes.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import DenseBackend
from anabranch_runtime.batch_size import BatchCost
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.cpu import check_cpusets
from anabranch_runtime.engines import Engines
from anabranch_runtime.executor import Executor, deliver
from anabranch_runtime.executor_lookups import LookupCounts, add_counts
from anabranch_runtime.lanes import Lane
from anabranch_runtime.models import DenseModel
from anabranch_runtime.observing import GroupObserver, ShedReason
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_runtime.refusals import drop, send_away
from anabranch_runtime.requests import Ticket
from anabranch_runtime.row_source import StoreView
from anabranch_runtime.selection import Lanes
from anabranch_runtime.served import Freshness, ServedVersion
from anabranch_runtime.settings import GroupSettings, QueueSettings
from anabranch_runtime.splitting import split
from anabranch_runtime.version_building import build_version
from anabranch_wire.errors import Overloaded, Unavailable
from anabranch_wire.snapshots import Snapshot

__all__ = ["SessionGroup"]

_LEAST_RETRY_S: Final = 0.001
_UNKNOWN: Final = Freshness()

Inputs = Mapping[str, NDArray[np.generic]]


class SessionGroup:
    """Takes tickets from any thread and returns them finished through their sinks.

    Invariants: a ticket accepted by `submit` reaches its sink exactly once; an executor sleeps
    only while nothing waits for it, or what waits may still fill a batch (`max_delay_s`).

    Args:
        model: model name.
        settings: how it is run.
        backend: builds its versions.
        observer: counts what happens.
        on_unused: told that `free_unused` has something to do: no request and no state of a catalog
            refers to some version any more. Called in any thread, at any point, maybe in the middle
            of the group's own work: it may set a flag or wake somebody, and nothing else.

    Raises:
        InvalidInput: its executors are to keep to processors that this process may not use.

    Attributes:
        model: model name.
        settings: as given, with the queue settings that hold now.
    """

    def __init__(
        self,
        model: str,
        settings: GroupSettings,
        backend: DenseBackend,
        observer: GroupObserver,
        on_unused: Callable[[], None] = lambda: None,
    ) -> None:
        check_cpusets(settings.cpusets)
        self.model = model
        self.settings = settings
        self._backend = backend
        self._observer = observer
        self._lock = threading.Lock()
        self._closed = False
        cpusets = settings.cpusets or (None,) * settings.executors
        self._executors = tuple(
            Executor(model, index, self._take, observer, cpus, self._replace)
            for index, cpus in enumerate(cpusets)
        )
        self._lanes = Lanes(self._executors, settings.select, settings.queue.priority_levels)
        self._engines = Engines(self._executors, on_unused)
        for executor in self._executors:
            executor.start()

    # --- requests -------------------------------------------------------------------------------

    def submit(self, ticket: Ticket) -> None:
        """Queue `ticket`; its sink gets it back finished.

        Raises:
            Overloaded: the queue is full, or so long that the ticket would miss its deadline.
            Unavailable: the group is closing.
        """
        request = ticket.request
        ticket.submitted = now = time.monotonic()
        lanes = self._lanes
        wake: threading.Lock | None = None
        displaced: list[Ticket] = []
        with self._lock:
            if self._closed:
                raise Unavailable(f"model {self.model!r} is being unloaded")
            queue = self.settings.queue
            lane = lanes.choose(request)
            is_full = lanes.is_full(request, queue)
            if is_full and not lanes.can_displace(request, queue):
                raise self._refusal("queue_full", lane, now)
            if not lane.idle and lane.is_too_late(ticket, now):
                raise self._refusal("estimated_wait", lane, now)
            if is_full:
                displaced = lanes.displace(request, queue)
            if lane.idle:
                if resting := lanes.resting(ticket, lane):
                    self._hand_out(ticket, resting)
                    return
                wake = lane.rouse().wake
            lane.pending.push(ticket)
        if wake is not None:
            wake.release()
        if displaced:
            with self._lock:
                retry_s = max([lane.drain_s(now) for lane in lanes.every])
            send_away(displaced, self.model, max(retry_s, _LEAST_RETRY_S), now, self._observer)

    def queue_depth(self) -> tuple[int, int]:
        """Waiting requests and rows. Any thread."""
        with self._lock:
            return self._lanes.depth()

    def in_flight(self) -> int:
        """Requests taken and not yet finished; the parts of a cut one count each. Any thread."""
        with self._lock:
            at_work = [one.computing + (one.given is not None) for one in self._executors]
            return self._lanes.depth()[0] + sum(at_work)

    def set_queue(self, queue: QueueSettings) -> None:
        """Change what may wait from now on; what waits already stays. Any thread."""
        with self._lock:
            self.settings = replace(self.settings, queue=queue)
            self._lanes.set_levels(queue.priority_levels)

    # --- versions -------------------------------------------------------------------------------

    def load(
        self,
        snapshot: Snapshot,
        model: DenseModel,
        examples: Sequence[Inputs],
        *,
        warm_rounds: int = 5,
        description: str = "",
        user_inputs: tuple[str, ...] = (),
        costs: Sequence[BatchCost] = (),
        cancellation: Cancellation | None = None,
        store: StoreView | None = None,
        ranking: RankingRules | None = None,
        freshness: Freshness = _UNKNOWN,
    ) -> ServedVersion:
        """Build, bind and warm a version beside traffic; nothing sees it before this returns.

        The version may be used as long as somebody has it; afterwards `free_unused` frees what it
        ran on.

        Args:
            snapshot: what it is.
            model: what to build.
            examples: requests that it can compute; used to warm every executor and to measure how
                many rows a batch should have. Without any, batches stay as small as is safe.
            warm_rounds: runs of each example on each executor.
            description: the modeller's words.
            user_inputs: inputs that may be sent once per request; each has its rows on axis 0.
            costs: times of its batches on this machine, where they were measured before; else they
                are measured here.
            cancellation: ends the work early, and nothing is kept.
            store: where it looks up rows; needed where `model` has lookups, or had before they
                were cut.
            ranking: of users and candidates, where it has any.
            freshness: how new it is.

        Raises:
            InvalidInput: the graph cannot be built or cannot compute an example, or the store has
                other tables than the lookups.
            Cancelled: it was ended early.
            Unavailable: the group was closed.
        """
        built = build_version(
            self._backend,
            self.settings,
            model,
            examples,
            store,
            warm_rounds=warm_rounds,
            user_inputs=user_inputs,
            costs=costs,
            ending=cancellation or Cancellation(),
        )
        try:
            token = self._engines.add(built.engine, built.bindings)
        except BaseException:
            built.close()
            raise
        served = built.served(
            self, token, snapshot, description=description, ranking=ranking, freshness=freshness
        )
        self._engines.watch(served)
        return served

    def with_rows(
        self,
        served: ServedVersion,
        store: StoreView | None,
        snapshot: Snapshot | None = None,
        freshness: Freshness | None = None,
        ranking: RankingRules | None = None,
    ) -> ServedVersion:
        """Return `served` with other rows, on the same engine; cheap where only these differ.

        Requests to one and the other wait in one queue and never meet in a batch.

        Args:
            served: of this group.
            store: where the new one looks up its rows; None leaves that, or it looks none up.
            snapshot: what it is; None leaves that.
            freshness: how new it is; None leaves that.
            ranking: of users and candidates; None leaves that.

        Raises:
            InvalidInput: the store has other tables than the lookups.
        """
        source = served.source
        if store is not None:
            if source is None:
                raise ValueError(f"{served.snapshot} looks up no rows")
            source = source.at(store)
        new = replace(
            served,
            source=source,
            snapshot=snapshot or served.snapshot,
            freshness=freshness or served.freshness,
            ranking=served.ranking if ranking is None else ranking,
        )
        self._engines.watch(new)
        return new

    def lookup_counts(self) -> LookupCounts:
        """Return what was looked up since the group began, by feature and table. Any thread."""
        return add_counts([executor.lookups.counts() for executor in self._executors])

    def free_unused(self) -> int:
        """Free the engines of versions that nobody has any more, and return how many there were.

        Takes as long as freeing their memory takes. Any thread.
        """
        return self._engines.free_unused()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Refuse new tickets, compute what waits, end the executors, free the engines.

        Args:
            timeout_s: after this, what still waits is answered with Unavailable.

        Returns:
            Whether every executor ended in time.
        """
        with self._lock:
            self._closed = True
            idle = [lane for lane in self._lanes.every for _ in lane.idle]
            wakes = [lane.rouse().wake for lane in idle]
        for wake in wakes:
            wake.release()
        deadline = time.monotonic() + timeout_s
        ended = [
            executor.join(max(0.0, deadline - time.monotonic())) for executor in self._executors
        ]
        with self._lock:
            left = self._lanes.drain()
        for ticket in left:
            ticket.error = Unavailable(f"model {self.model!r} was unloaded")
        if left:
            deliver(left)
        if all(ended):
            self._engines.close()
        return all(ended)

    # --- executors ------------------------------------------------------------------------------

    def _take(self, executor: Executor) -> list[Ticket] | None:
        """Next batch for `executor`; sleeps while nothing waits; None when the group is closed."""
        lane = self._lanes.home(executor)
        delay_s = self.settings.batching.max_delay_s
        while True:
            now = time.monotonic()
            with self._lock:
                report, executor.report = executor.report, None
                if report is not None:
                    pace, rows = report
                    pace.observe(rows, now - executor.begun, now)
                given, executor.given = executor.given, None
                if given is not None:
                    lane.begin(executor, [given], now)
                    self._wake_for_the_rest(lane)
                    return [given]
                wait_s = lane.pending.fill_time(delay_s, now) if delay_s else 0.0
                if wait_s <= 0.0 or self._closed:
                    batch, late = lane.pending.take(now)
                    if batch or late:
                        lane.begin(executor, batch, now)
                        self._wake_for_the_rest(lane)
                    elif self._closed:
                        return None
                    else:
                        wait_s = -1.0
                        lane.rest(executor)
                else:
                    batch, late = [], []
                    lane.rest(executor)
            if late:
                drop(late, now, self._observer)
            if batch or late:
                return batch
            if not executor.wake.acquire(timeout=wait_s):
                with self._lock:
                    if executor in lane.idle:
                        lane.idle.remove(executor)
                        continue
                # A submitter took it off the idle list at that very moment.
                executor.wake.acquire()

    def _wake_for_the_rest(self, lane: Lane) -> None:
        """Let another executor look after what a batch left behind; the lock is held.

        Without a delay there is no need: each ticket that finds executors asleep wakes one. With
        one, the executor that goes to work may have been the only one to watch the time.
        """
        if lane.pending.requests and lane.idle and self.settings.batching.max_delay_s:
            lane.rouse().wake.release()

    def _replace(self, executor: Executor) -> None:
        """Put another thread in place of one that died, and answer what it was at."""
        lost, executor.at_work = executor.at_work, None
        with self._lock:
            lane = self._lanes.home(executor)
            if executor in lane.idle:
                lane.idle.remove(executor)
            executor.begin([], 0.0)
        self._observer.executor_restarted("fault")
        for ticket in lost or ():
            if ticket.outputs is None and ticket.error is None:
                ticket.finished = time.monotonic()
                ticket.error = Unavailable("the executor was lost while it computed the request")
        if lost:
            deliver(lost)
        self._engines.rebind(executor)
        executor.start()

    def _hand_out(self, ticket: Ticket, resting: Sequence[Lane]) -> None:
        """Give an idle executor of each lane its own part; through a queue they could merge.

        The lock is held.
        """
        for part, lane in zip(split(ticket, len(resting)), resting, strict=True):
            part.submitted = ticket.submitted
            executor = lane.rouse()
            executor.given = part
            executor.wake.release()

    def _refusal(self, reason: ShedReason, lane: Lane, now: float) -> Overloaded:
        """Count a request that is not taken, and say why; the lock is held."""
        self._observer.shed(reason)
        requests, rows = self._lanes.depth()
        why = "it would be too late" if reason == "estimated_wait" else "the queue is full"
        return Overloaded(
            f"model {self.model!r}: {why}: {requests} requests of {rows} rows wait",
            max(lane.drain_s(now), _LEAST_RETRY_S),
        )
