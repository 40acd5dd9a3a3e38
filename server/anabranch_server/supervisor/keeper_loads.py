"""Versions of one model, looked at by the loader before they are switched to."""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from anabranch_model_store.memory import Demand, Footprint, OutOfRoom, must_give_way
from anabranch_server.load_failures import failure_reason
from anabranch_server.processes.loader_messages import Found, LoadVersion, Progress
from anabranch_server.processes.plans import VersionPlan
from anabranch_server.supervisor.delta_choice import NO_DELTA_FACTS, wanted_delta
from anabranch_server.supervisor.keeper_deltas import DeltaSteps
from anabranch_server.supervisor.keeper_failures import of_version
from anabranch_server.supervisor.keeper_reports import ReloadReports
from anabranch_server.supervisor.keeper_switches import Switches
from anabranch_server.supervisor.keeper_work import Work
from anabranch_server.supervisor.surroundings import Surroundings
from anabranch_server.supervisor.watching import SeenModel
from anabranch_server.supervisor.watching_files import SeenVersion
from anabranch_wire.errors import AnabranchError, Conflict, NotFound, TooLarge

__all__ = ["Loads", "Wish"]

_WAYS: Final = 4
"""How often deltas are asked for at first: where one is bad, others may lead on."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of a version that is looked at.

    Attributes:
        max_bytes: what the model's versions may take; 0 is no limit of its own.
        is_in_memory: whether workers have it already, so that it takes no more room.
        delta: the delta that it is to be at; None is as far as deltas lead.
        is_exact: whether it is of no use at another one.
        is_manual: whether deltas wait until somebody asks.
        may_obtain: whether it may be looked at anew where deltas do not lead there.
    """

    max_bytes: int = 0
    is_in_memory: bool = False
    delta: int | None = None
    is_exact: bool = False
    is_manual: bool = False
    may_obtain: bool = True


class Loads:
    """Has versions and deltas of one model looked at, one after the other.

    A keeper has two, which may be at work at the same time: one for versions that take long, and
    one for the deltas of what is served meanwhile.

    Args:
        name: of the model.
        around: what it works with.
        reports: of the model.
        switches: of the model; their shelf takes what is found good.
        deltas: of the model.

    Attributes:
        current: version that is being looked at.
        on_progress: told how far that is.
    """

    def __init__(
        self,
        name: str,
        around: Surroundings,
        reports: ReloadReports,
        switches: Switches,
        deltas: DeltaSteps,
    ) -> None:
        self.current: int | None = None
        self.on_progress: Callable[[Progress], None] = lambda progress: None
        self._name = name
        self._around = around
        self._reports = reports
        self._switches = switches
        self._deltas = deltas

    async def obtain(
        self, number: int, seen: SeenModel | None, wish: Wish
    ) -> AnabranchError | None:
        """Have a complete version looked at, and its deltas; returns why it cannot be served.

        That a delta cannot be applied is no reason, unless a certain one is wanted: the version is
        served as far as deltas lead.

        Args:
            number: of the version.
            seen: what the repository has.
            wish: what is wanted of it.
        """
        version = None if seen is None else seen.versions.get(number)
        if seen is None or version is None:
            return NotFound(f"model {self._name!r} has no complete version {number}")
        self.current = number
        try:
            request = LoadVersion(
                number=0,
                model=self._name,
                version=number,
                model_path=str(seen.path),
                version_path=str(version.path),
                serving_yaml=seen.serving_yaml,
                priority="idle" if self._around.is_serving() else "normal",
                available_bytes=None,
                in_use=self._around.in_use(),
            )
            if wish.is_in_memory:
                found = await self._around.loader.load(request, self.on_progress)
            else:
                found = await self._load_anew(request, version, wish.max_bytes)
            known = self._switches.shelf.found.get(number)
            if known is not None and known.plan.identity != found.version.identity:
                self._reports.delta_faults.forget(number)  # they were of other files
            plan, work, error = await self._with_deltas(found, seen, version, wish)
        except AnabranchError as error:
            self._reports.failed(number, error, version.fingerprint)
            return of_version(number, error)
        finally:
            self.current = None
        self._reports.failures.passed(number)
        if wish.is_exact and plan.delta != wish.delta:
            return error or Conflict(f"version {number} cannot be brought to delta {wish.delta}")
        shelf = self._switches.shelf
        shelf.retained.publish(found.version)
        shelf.put(version, plan, work)
        self._reports.notes(plan)
        return None

    async def _with_deltas(
        self, found: Found, seen: SeenModel, version: SeenVersion, wish: Wish
    ) -> tuple[VersionPlan, Work, AnabranchError | None]:
        """Return a version with its deltas, what that took, and what is in the way of more."""
        plan, work, number = found.version, Work(found.phase_ms), version.number
        first: AnabranchError | None = None
        for _ in range(_WAYS):
            facts = self._deltas.facts(seen, (number,)).get(number, NO_DELTA_FACTS)
            upto = wanted_delta(plan.delta, facts, held=wish.delta, is_manual=wish.is_manual)
            if upto <= plan.delta:
                break
            applied, error = await self._deltas.apply(plan, upto, seen, version, self.on_progress)
            first = first or error
            if applied is not None:
                plan, work = applied.version, work.with_deltas(applied)
        return plan, work, first

    async def move(
        self, number: int, delta: int, seen: SeenModel | None, wish: Wish
    ) -> AnabranchError | None:
        """Bring a version that was found good to another delta, as far as that can be had.

        Args:
            number: of the version.
            delta: that it is to be at.
            seen: what the repository has.
            wish: what is wanted where the version has to be looked at once more.

        Returns:
            What is in the way, where that is a failure.
        """
        shelf = self._switches.shelf
        now = shelf.found[number].plan
        if (known := shelf.retained.at(now, delta)) is not None:
            shelf.move(number, known, Work())
            return None
        version = None if seen is None else seen.versions.get(number)
        start = shelf.retained.before(now, delta)
        if now.delta < delta and (start is None or start.delta < now.delta):
            start = now  # else, after a rollback, what was left: the rows in memory are there still
        if seen is None or version is None or start is None:
            if not wish.may_obtain:
                return None
            error = await self.obtain(number, seen, wish)
            if error is not None:  # not over and over
                self._reports.delta_failed(
                    number,
                    delta,
                    delta,
                    error,
                    failure_reason(error),
                    asyncio.get_running_loop().time(),
                    passes=True,
                )
            return error
        work = shelf.work(number) if start is now else Work()
        applied, error = await self._deltas.apply(start, delta, seen, version, self.on_progress)
        if applied is None and not await asyncio.to_thread(_is_cached, start):
            # The cache folder was deleted: a look at the version itself fills it once more.
            self._reports.delta_faults.forget(number)
            shelf.retained.forget(number)
            return await self.obtain(number, seen, wish) if wish.may_obtain else error
        if applied is not None and (applied.version.delta == delta or delta > now.delta):
            shelf.move(number, applied.version, work.with_deltas(applied))
            self._reports.notes(applied.version, now.notes)
        elif start is not now:
            shelf.retained.forget(number)  # the version itself is looked at next time
        return error

    async def _load_anew(self, request: LoadVersion, version: SeenVersion, max_bytes: int) -> Found:
        """Have a version looked at that takes room; unserved ones make it.

        How much its tables take is known once the loader has seen them.

        Raises:
            TooLarge: it does not fit even so.
            AnabranchError: it cannot be served, or the unserved ones could not be let go.
        """
        loader, graph = self._around.loader, Footprint(version.bytes)
        try:
            allowed = await self._make_room(graph, max_bytes, self._around.available_bytes())
        except TooLarge as whole:
            return await self._load_cut(request, version, max_bytes, whole)
        try:
            found = await loader.load(_within(request, allowed), self.on_progress)
        except OutOfRoom as short:
            more = Footprint(version.bytes, short.tables)
            allowed = await self._make_room(more, max_bytes, self._around.available_bytes())
            found = await loader.load(_within(request, allowed), self.on_progress)
        # Memory that was left has been looked at with the tables; what the model may take was not.
        each = version.bytes if found.version.cut is None else found.version.weight_bytes
        await self._make_room(Footprint(each, _tables(found.version)), max_bytes, None)
        return found

    async def _load_cut(
        self, request: LoadVersion, version: SeenVersion, max_bytes: int, whole: TooLarge
    ) -> Found:
        """Have a version looked at that is too large for every worker to hold it.

        It may be all the same that its tables leave the graph, and lie in memory once.

        Raises:
            TooLarge: `whole`, where it does not fit even once; or it stays whole.
            AnabranchError: it cannot be served, or the unserved ones could not be let go.
        """
        around = self._around
        try:
            once = Footprint(0, version.bytes)
            allowed = await self._make_room(once, max_bytes, around.available_bytes())
        except TooLarge:
            raise whole from None
        found = await around.loader.load(_within(request, allowed), self.on_progress)
        if found.version.cut is None:
            raise whole
        parts = Footprint(found.version.weight_bytes, _tables(found.version))
        await self._make_room(parts, max_bytes, around.available_bytes())
        return found

    async def _make_room(self, new: Footprint, max_bytes: int, available: int | None) -> int | None:
        """Let unserved versions go where a new one needs their room; returns what it may take.

        Args:
            new: what it takes.
            max_bytes: what the model's versions may take; 0 is no limit of its own.
            available: what the machine has left; None where that does not matter.

        Raises:
            TooLarge: it does not fit.
            AnabranchError: the unserved ones could not be let go.
        """
        switches, workers = self._switches, self._around.workers
        async with switches.turn:
            state = switches.state
            plans = () if state is None else state.versions
            served = () if state is None else state.served
            kept = _footprint(plan for plan in plans if plan.version not in served)
            left = tuple(plan for plan in plans if plan.version in served)
            demand = Demand(new, _footprint(left), kept, workers)
            if must_give_way(demand, max_bytes, available) and state is not None:
                lean = msgspec.structs.replace(state, versions=left)
                error = await switches.switch(lean, switches.intent, "config")
                if error is not None:
                    raise error
                available = None if available is None else available + kept.total(workers)
        # The loader counts the graph once, with the tables that all workers share.
        others = (workers - 1) * new.each
        return None if available is None else max(0, available - others)


def _within(request: LoadVersion, available_bytes: int | None) -> LoadVersion:
    return msgspec.structs.replace(request, available_bytes=available_bytes)


def _footprint(plans: Iterable[VersionPlan]) -> Footprint:
    """Return what versions take together."""
    each = shared = 0
    for plan in plans:
        each += plan.weight_bytes
        shared += _tables(plan)
    return Footprint(each, shared)


def _tables(plan: VersionPlan) -> int:
    """Return what is in memory once for all workers: rows, and the item table that they map."""
    rows = 0 if plan.store is None else plan.store.memory_bytes
    items = None if plan.ranking is None else plan.ranking.item_table
    return rows + (0 if items is None else items.bytes)


def _is_cached(plan: VersionPlan) -> bool:
    """Whether the files that a version and its deltas are made of are there; any thread."""
    return all(os.path.exists(path) for path in plan.kept_files)
