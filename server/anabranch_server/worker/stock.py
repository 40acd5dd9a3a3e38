"""Carries out what a supervisor asks of a worker's models: prepare, abort, and let go of the old.

There is no message for the switch itself: while a prepared epoch is ahead of what is current, the
shared word is looked at every few milliseconds. Requests see the switch at once all the same, since
the catalog looks at the word for each of them; what is done here is to let go of what has passed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from anabranch_runtime.backends import DenseBackend, load_backend
from anabranch_runtime.catalog import Catalog
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.store import Residency
from anabranch_server.processes.messages import (
    Ack,
    CannotPrepare,
    FromWorker,
    HeldModel,
    Prepare,
    Released,
)
from anabranch_server.processes.packets import close_all
from anabranch_server.processes.planned_models import snapshot
from anabranch_server.processes.plans import (
    DESCRIPTORS_EACH,
    GroupPlan,
    QueuePlan,
    StatePlan,
    VersionPlan,
)
from anabranch_server.worker.builds import Builds
from anabranch_server.worker.counting import Counting
from anabranch_server.worker.generations import Generations
from anabranch_server.worker.groups import close_group, free_engines
from anabranch_server.worker.plans import (
    freshness,
    group_settings,
    queue_settings,
    serving_state,
)
from anabranch_server.worker.retirement import Retired
from anabranch_server.worker.shelf import PreparedState, Shelf
from anabranch_server.worker.threads import FreshThreads
from anabranch_wire.errors import AnabranchError, Conflict, Internal

__all__ = ["Stock", "WorkerPlace"]

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.005
_RETIRE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Which worker a stock belongs to.

    Attributes:
        index: number of the worker.
        incarnation: as acknowledgements name it.
        max_repeated_bytes: see `GroupSettings`.
        residency: of base rows that it maps.
    """

    index: int
    incarnation: int
    max_repeated_bytes: int
    residency: Residency = "populated"


class Stock:
    """Every model of a worker. Belongs to the event loop, but for what its groups do.

    Args:
        place: which worker this is.
        catalog: what requests see; filled here alone.
        counting: told what was loaded and unloaded.
        builds: builds versions.
        say: sends a message to the supervisor, if there is one.
    """

    def __init__(
        self,
        place: WorkerPlace,
        catalog: Catalog,
        counting: Counting,
        builds: Builds,
        say: Callable[[FromWorker], None],
    ) -> None:
        self._place = place
        self._catalog = catalog
        self._counting = counting
        self._threads = FreshThreads()
        self._builds = builds
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._shelves: dict[str, Shelf] = {}
        self._preparing: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._backends: dict[str, DenseBackend] = {}
        self._moving: set[str] = set()
        self._watching: asyncio.TimerHandle | None = None
        self._retiring: asyncio.TimerHandle | None = None

    # --- what is asked for ----------------------------------------------------------------------

    def prepare(self, told: Prepare, fds: list[int]) -> None:
        """Begin to make a state ready; it is answered when it is, or cannot be.

        Args:
            told: which state.
            fds: of the message; they belong to this object from now on.
        """
        key = told.model, told.epoch
        earlier = self._preparing.get(key)
        if earlier is not None:
            earlier.cancel()
        task = asyncio.ensure_future(self._prepare(told, tuple(fds)))
        self._preparing[key] = task
        task.add_done_callback(lambda done: self._prepared(key, done))
        task.add_done_callback(lambda done: close_all(fds))

    def abort(self, model: str, epoch: int) -> None:
        """Forget an epoch, prepared or about to be; one that is current stays."""
        preparing = self._preparing.pop((model, epoch), None)
        if preparing is not None:
            preparing.cancel()
        shelf = self._shelves.get(model)
        if shelf is not None and epoch > self._catalog.epoch(shelf.slot) and epoch in shelf.states:
            self._catalog.forget(model, epoch)
            for number in shelf.drop(epoch):
                if not shelf.has_version(number):
                    self._unloaded(Retired(model, number))
            self._tidy(model)

    def abandon(self) -> None:
        """Give up what is not prepared yet: who asked for it is gone.

        What is prepared stays, since it may have been made current.
        """
        for preparing in self._preparing.values():
            preparing.cancel()
        self._preparing.clear()

    def held(self) -> Mapping[str, HeldModel]:
        """Return what there is of each model, for a new supervisor."""
        self._watch()
        held = {}
        for model, shelf in self._shelves.items():
            current = shelf.states.get(shelf.current)
            if epochs := shelf.epochs:
                plan = None if current is None else current.plan
                held[model] = HeldModel(shelf.slot, epochs, plan)
        return held

    def in_flight(self) -> int:
        """Return the requests that wait or are computed."""
        return sum(group.in_flight() for shelf in self._shelves.values() for group in shelf.groups)

    def refresh(self) -> None:
        """Bring the gauges of the counters page up to date."""
        for model, shelf in self._shelves.items():
            self._counting.refresh(model, shelf.groups)

    def close(self) -> bool:
        """Close every group; what still waits for an executor is answered with an error.

        Returns:
            Whether everything has ended.
        """
        self.abandon()
        for timer in (self._watching, self._retiring):
            if timer is not None:
                timer.cancel()
        clean = True
        for model, shelf in self._shelves.items():
            for group in shelf.groups:
                clean &= close_group(model, group)
        return clean and not self._threads.is_busy and not self._builds.is_busy

    # --- preparing ------------------------------------------------------------------------------

    async def _prepare(self, told: Prepare, fds: Sequence[int]) -> None:
        model, epoch = told.model, told.epoch
        begun = time.monotonic()
        try:
            shelf = self._shelf(model, told.slot)
            shelf.asked += 1
            try:
                async with shelf.preparing:
                    await self._make_ready(shelf, told, fds)
            finally:
                shelf.asked -= 1
        except AnabranchError as error:
            self._refuse(told, type(error).__name__, error.message)
        except Exception as fault:  # the edge of preparing: one state never ends the worker
            _log.exception("preparing failed", extra={"event": "internal_error", "model": model})
            self._refuse(told, Internal.__name__, f"{type(fault).__name__} while preparing")
        else:
            self._say(Ack(model, epoch, self._place.incarnation))
            self._trace("prepare", begun, {"model": model, "epoch": epoch})

    def _refuse(self, told: Prepare, kind: str, text: str) -> None:
        """Say why a state cannot be prepared; one that is current already is missed from now on."""
        if told.epoch == self._catalog.epoch(told.slot):
            self._catalog.miss(told.model)
        self._say(CannotPrepare(told.model, told.epoch, kind, text))

    def _prepared(self, key: tuple[str, int], task: asyncio.Task[None]) -> None:
        if self._preparing.get(key) is task:
            del self._preparing[key]
        self._watch()
        self._tidy(key[0])

    def _shelf(self, model: str, slot: int) -> Shelf:
        shelf = self._shelves.get(model)
        if shelf is None:
            generations = Generations(self._place.residency, self._threads)
            shelf = Shelf(slot, partial(self._make_group, model), generations)
            self._shelves[model] = shelf
        elif shelf.slot != slot:
            raise Conflict(f"model {model!r} has slot {shelf.slot} here, not {slot}")
        return shelf

    async def _make_ready(self, shelf: Shelf, told: Prepare, fds: Sequence[int]) -> None:
        """Build what is missing and hold the state; its shelf is not changed by anybody else."""
        model, epoch, plan = told.model, told.epoch, told.state
        if epoch < self._catalog.epoch(shelf.slot):
            raise Conflict(f"model {model!r}: epoch {epoch} is over")
        had = shelf.states.get(epoch)
        if had is not None and had.plan == plan:
            return
        if had is not None and epoch == shelf.current:
            raise Conflict(f"model {model!r}: epoch {epoch} is current, and is something else")
        versions: dict[int, ServedVersion] = {}
        if plan is not None:
            queue_settings(plan.queue)
            for version in plan.versions:
                rows = plan.generation(version.version)
                served = shelf.find(plan.group, version, rows)
                if served is None:
                    served = await self._obtain(shelf, told, version, fds)
                    shelf.built(plan.group, served)
                versions[version.version] = served
        state = None if plan is None else serving_state(plan, versions)
        for number in versions:
            self._counting.retirement.loaded(Retired(model, number))
        self._catalog.hold(model, shelf.slot, epoch, state)
        shelf.keep(epoch, PreparedState(plan, versions))
        self._moving.add(model)

    async def _obtain(
        self, shelf: Shelf, told: Prepare, version: VersionPlan, fds: Sequence[int]
    ) -> ServedVersion:
        """Build a version, or go on with the engine of one that differs in rows and the like."""
        plan, idle = told.state, not told.urgent
        assert plan is not None, "of a version of the state"
        rows, view = plan.generation(version.version), None
        if rows is not None and version.store is not None:
            first = DESCRIPTORS_EACH * plan.generations.index(rows)
            pair = fds[first : first + DESCRIPTORS_EACH]
            view = await shelf.generations.view(rows, pair, idle=idle)
        like = shelf.like(plan.group, version)
        if like is not None and (view is None) == (version.store is None):
            had, served = like
            is_ranked_alike = had.ranking == version.ranking
            ranking = None if is_ranked_alike else await self._builds.rules(version)
            about = freshness(version)
            return served.group.with_rows(served, view, snapshot(version), about, ranking)
        begun = time.monotonic()
        group = shelf.group(plan.group, plan.queue)
        served = await self._builds.build(group, version, view, urgent=told.urgent)
        self._trace("build", begun, {"model": told.model, "version": version.version})
        return served

    def _make_group(self, model: str, group: GroupPlan, queue: QueuePlan) -> SessionGroup:
        place = self._place
        backend = self._backends.get(group.backend)
        if backend is None:
            backend = self._backends[group.backend] = load_backend(group.backend)
        settings = group_settings(group, queue, place.index, place.max_repeated_bytes)
        self._counting.retirement.loaded(Retired(model))
        return SessionGroup(
            model,
            settings,
            backend,
            self._counting.model(model),
            on_unused=partial(self._has_unused, model),
        )

    def _has_unused(self, model: str) -> None:
        """Take note from whatever thread let go of a version last."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._free, model)

    # --- what passes ----------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look at the words, and again soon while one may move."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        try:
            for model in list(self._moving):
                shelf = self._shelves.get(model)
                if shelf is not None:
                    self._look(model, shelf)
                if shelf is None or not shelf.is_moving:
                    self._moving.remove(model)
        finally:  # whatever one model did, the others are looked at again
            if self._moving:
                self._watching = self._loop.call_later(_POLL_S, self._watch)

    def _look(self, model: str, shelf: Shelf) -> None:
        """Let go of what has passed, and say which epochs no request reads any more."""
        epoch = self._catalog.epoch(shelf.slot)
        if epoch > shelf.current:
            begun = time.monotonic()
            self._catalog.sweep(model)
            self._take_queue(shelf.turn(epoch), shelf)
            about: dict[str, str | int] = {"model": model, "epoch": epoch}
            self._counting.spans.add("switch", begun, time.monotonic(), about)
        for over, numbers in shelf.left():
            for number in numbers:
                if not shelf.has_version(number):
                    self._unloaded(Retired(model, number))
            self._say(Released(model, over))
            self._tidy(model)

    def _trace(self, name: str, begun: float, about: Mapping[str, str | int]) -> None:
        """Write down what took from `begun` until now, where somebody asks for it."""
        self._counting.spans.add_passage(name, begun, time.monotonic(), about)

    def _take_queue(self, state: PreparedState | None, shelf: Shelf) -> None:
        """Let the groups of the model queue as its current state says."""
        plan: StatePlan | None = None if state is None else state.plan
        if plan is not None:
            settings = queue_settings(plan.queue)
            for group in shelf.groups:
                if group.settings.queue != settings:
                    group.set_queue(settings)

    def _tidy(self, model: str) -> None:
        """Close groups, and forget the model, where nothing needs them any more."""
        shelf = self._shelves.get(model)
        if shelf is None:
            return
        shelf.unmap()
        for group in shelf.take_empty_groups():
            self._counting.group_gone(model, group)
            self._threads.run("close", partial(close_group, model, group), idle=False)
        if shelf.is_empty:
            del self._shelves[model]
            self._unloaded(Retired(model))

    def _unloaded(self, what: Retired) -> None:
        self._counting.retirement.unloaded(what, self._loop.time())
        if self._retiring is None:
            self._retiring = self._loop.call_later(_RETIRE_S, self._retire)

    def _retire(self) -> None:
        self._counting.retire(self._loop.time())
        waiting = len(self._counting.retirement)
        self._retiring = self._loop.call_later(_RETIRE_S, self._retire) if waiting else None

    def _free(self, model: str) -> None:
        """Free what a group has for versions that are gone, in a thread that may take its time."""
        shelf = self._shelves.get(model)
        if shelf is not None:
            for group in shelf.groups:
                self._threads.run("free", partial(free_engines, group), idle=False)
        self._tidy(model)
