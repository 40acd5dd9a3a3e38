"""The embedding rows of one version as their writer has them: a segment, and generations over it.

What is native runs in threads beside the event loop, one piece of work of a store at a time.
Invariants: only the newest generation changes, and only when a switch takes effect; an older one
stays as long as somebody may read it; between the staging of a change and its end nothing else
touches the store. The rows of a delta are never applied to those of another one than they follow.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.store import (
    Base,
    Capacity,
    Change,
    Growth,
    Keys,
    SegmentTable,
    StoreFull,
    StoreWriter,
    TableStats,
)
from anabranch_server.processes.plans import GenerationPlan, StorePlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.store_coming import Coming, Fill, made_anew, staged
from anabranch_server.supervisor.store_deltas import ReadableDeltas
from anabranch_server.supervisor.store_figures import StoreFigures, table_stats
from anabranch_server.supervisor.store_opening import OpenStore, open_store
from anabranch_server.supervisor.store_sizes import check_room
from anabranch_server.supervisor.uninterrupted import in_thread
from anabranch_wire.errors import Unavailable

__all__ = ["VersionStore"]

_log = logging.getLogger(__name__)

_STEP_ROWS: Final = 200_000
"""Rows that a growth copies before others have their turn: some tens of milliseconds."""


class VersionStore:
    """One store. Belongs to the event loop.

    Made by `create`.

    Attributes:
        plan: what it was made from.
        tables: of the segment.
        figures: as they were when they were last looked at.
    """

    def __init__(self, plan: StorePlan, begin: GenerationPlan, delta: int, made: OpenStore) -> None:
        self.plan = plan
        self.tables: tuple[SegmentTable, ...] = made.segment.tables
        self.figures = made.figures
        self._segment = made.segment
        self._descriptor = made.descriptor
        self._version = begin.version
        self._writers = {begin.number: made.writer}
        self._newest = begin.number
        self._capacities = made.capacities
        self._deltas = ReadableDeltas(delta, begin)
        self._turn = asyncio.Lock()
        self._coming: Coming | None = None
        self._floor = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def create(
        cls,
        plan: StorePlan,
        version: int,
        number: int,
        base: Base,
        available_bytes: int | None,
        fills: Iterable[Fill] = (),
        *,
        delta: int = 0,
    ) -> "VersionStore":
        """Open a segment and make its first generation.

        Args:
            plan: of the store.
            version: number of the version.
            number: of the generation.
            base: where base rows live.
            available_bytes: memory that it may take, a copy of the segment included; None where
                that is not known.
            fills: what has changed since the segment was made.
            delta: that its rows are at then.

        Raises:
            NoRoom: what `fills` change is more than the tables may have.
            TooLarge: there is no memory for it; the message has the numbers.
            Unavailable: the segment is gone.
            Corrupt, Unsupported: the segment is damaged, or of a newer release.
            AnabranchError: what `fills` raise.
        """
        made = await in_thread(
            lambda: open_store(plan, base, available_bytes, fills),
            lambda made: os.close(made.descriptor),
        )
        begin = GenerationPlan(version, number, made.writer.version)
        return cls(plan, begin, delta, made)

    # --- what there is --------------------------------------------------------------------------

    @property
    def numbers(self) -> Collection[int]:
        """Generations that are alive, the newest last."""
        return self._writers.keys()

    @property
    def newest(self) -> GenerationPlan:
        """The generation that changes, at its last version."""
        return GenerationPlan(self._version, self._newest, self._newest_writer().version)

    @property
    def delta(self) -> int:
        """The delta that its newest rows are at."""
        return self._deltas.newest

    @property
    def deltas(self) -> tuple[int, ...]:
        """Deltas whose rows can be read without a change of rows, rising."""
        return self._deltas.numbers

    def at(self, delta: int) -> GenerationPlan | None:
        """Return where the rows of a delta are, or will be after the switch at work; or None."""
        coming = self._coming
        if coming is not None and coming.delta == delta:
            return coming.place
        return self._deltas.at(delta) if delta in self._deltas else None

    @property
    def is_busy(self) -> bool:
        """Whether something is at work on it, or about to be."""
        return self._turn.locked() or bool(self._tasks)

    @property
    def capacities(self) -> Sequence[Capacity]:
        """Room of each table in the newest generation."""
        return self._capacities

    @property
    def most_keys(self) -> Sequence[int]:
        """Keys that each table may have, whatever room it gets."""
        return [one.most_keys for one in self.plan.capacities]

    def descriptors(self, number: int) -> tuple[int, int]:
        """Return the segment and the memory of a generation; both stay the store's."""
        return self._descriptor, self._writers[number].fd

    async def rows(
        self, at: GenerationPlan, table: int, keys: Keys
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return rows (n, dim) float32, and which of them there are."""
        generation = self._writers[at.number].generation
        return await asyncio.to_thread(generation.rows, table, keys, at.store_version)

    async def stats(self) -> tuple[TableStats, ...]:
        """Return what each table holds, when nothing is at work on it any more.

        Unlike `look`, which asks the kernel about every page, it costs next to nothing.
        """
        async with self._turn:
            writer, tables = self._newest_writer(), len(self.tables)
            return await in_thread(lambda: table_stats(writer, tables))

    async def look(self) -> StoreFigures:
        """Look how the store stands, when nothing is at work on it any more."""
        async with self._turn:
            await self._look()
        return self.figures

    async def glance(self) -> StoreFigures:
        """Return how the store stands, or stood before what is at work on it."""
        return self.figures if self._turn.locked() else await self.look()

    # --- changes --------------------------------------------------------------------------------

    async def stage(self, delta: int, fills: Sequence[Fill]) -> None:
        """Prepare a change of the newest rows; `apply` or `abandon` has to follow.

        Args:
            delta: that they are at then.
            fills: what changes, one after the other; none where the rows of `delta` are the same.

        Raises:
            NoRoom: it does not fit.
            AnabranchError: what a fill raises.
        """
        if not fills:
            self._coming = Coming(delta, self.newest)
            return
        await self._turn.acquire()
        try:
            change = await staged(self._newest_writer(), fills)
        except BaseException:
            self._turn.release()
            raise
        place = GenerationPlan(self._version, self._newest, change.version)
        self._coming = Coming(delta, place, change)

    async def renew(
        self, delta: int, fills: Iterable[Fill], number: int, available_bytes: int | None
    ) -> None:
        """Make a generation beside the others; `apply` or `abandon` has to follow.

        Args:
            delta: that its rows are at.
            fills: what has changed until then since the segment was made.
            number: of the generation.
            available_bytes: memory that it may take; None where that is not known.

        Raises:
            NoRoom: what changes is more than the tables may have.
            TooLarge: there is no memory for it; the message has the numbers.
            Unavailable: there is none to be had.
            AnabranchError: what a fill raises.
        """
        writer, room = await made_anew(
            self._segment, self._capacities, self.most_keys, fills, available_bytes
        )
        self._writers[number] = writer
        place = GenerationPlan(self._version, number, writer.version)
        self._coming = Coming(delta, place, room=room)

    async def apply(self, delta: int, retain: int) -> None:
        """Make what was prepared true, if anything was. Does not fail.

        Args:
            delta: that is served from now on.
            retain: how many deltas that were served before stay readable.
        """
        coming = self._coming
        if coming is not None:
            if coming.change is not None:
                try:
                    await in_thread(coming.change.apply)
                finally:
                    self._turn.release()
            self._coming = None
            if coming.room is None:
                self._deltas.go_on(coming.delta, coming.place)
            else:
                self._newest, self._capacities = coming.place.number, coming.room
                self._floor = 0
                self._deltas.begin_anew(coming.delta, coming.place)
        self._deltas.serve(delta, retain)

    def abandon(self) -> None:
        """Give back what was prepared, if anything was."""
        coming, self._coming = self._coming, None
        if coming is None:
            return
        if coming.change is not None:
            self._spawn(self._give_back(coming.change))
        if coming.room is not None:
            self._spawn(_free([self._writers.pop(coming.place.number)]))

    async def _give_back(self, change: Change) -> None:
        try:
            await in_thread(change.close)
        finally:
            self._turn.release()

    # --- room -----------------------------------------------------------------------------------

    async def grow(self, capacities: Sequence[Capacity], available_bytes: int | None) -> Growth:
        """Copy what is visible into more room, piece by piece; returns what `take_over` needs.

        Changes go on between the pieces.

        Raises:
            TooLarge: there is no memory for it.
            Unavailable: there is none to be had.
        """
        check_room(self.tables, capacities, available_bytes)
        writer = self._newest_writer()
        async with self._turn:
            try:
                growth = await in_thread(lambda: writer.grow(capacities), Growth.close)
            except OSError as error:
                text = f"the tables get no more room: {error.strerror}"
                raise Unavailable(text) from None
        try:
            while True:
                async with self._turn:
                    if await in_thread(lambda: growth.step(_STEP_ROWS)):
                        return growth
        except BaseException:
            self._spawn(self._end(growth))
            raise

    async def take_over(self, growth: Growth, capacities: Sequence[Capacity], number: int) -> None:
        """Go on with the new generation: from now on it is the one that changes.

        So it is where this was cancelled meanwhile: what was finished cannot be taken back. It has
        the newest rows alone: those of deltas before can be read no longer than they are.

        Raises:
            NoRoom: more has changed meanwhile than there is room for.
        """

        def go_on(writer: StoreWriter) -> None:
            self._writers[number] = writer
            self._newest = number
            self._capacities = tuple(capacities)
            self._floor = 0
            self._deltas.begin_anew(self._deltas.newest, self.newest)

        async with self._turn:
            try:
                go_on(await in_thread(growth.finish, go_on))
            except StoreFull as error:
                raise NoRoom(error.message) from None
            await self._look()

    def give_up(self, growth: Growth) -> None:
        """End a growth that nobody takes over."""
        self._spawn(self._end(growth))

    async def _end(self, growth: Growth) -> None:
        async with self._turn:
            await in_thread(growth.close)

    # --- what passes ----------------------------------------------------------------------------

    def keep(self, read: Mapping[int, int]) -> None:
        """Let go of what nobody reads any more, and no delta that is retained.

        Args:
            read: number of each generation that somebody may read -> the oldest store version.
        """
        oldest, newest = dict(read), self._newest
        for place in self._deltas.places:
            oldest[place.number] = min(
                place.store_version, oldest.get(place.number, place.store_version)
            )
        coming = self._coming.place.number if self._coming is not None else newest
        doomed = [
            self._writers.pop(number)
            for number in list(self._writers)
            if number not in (newest, coming) and number not in oldest
        ]
        if doomed:
            self._spawn(_free(doomed))
        floor = oldest[newest]
        if floor > self._floor:
            self._floor = floor
            self._spawn(self._reclaim())

    async def close(self) -> None:
        """Let go of everything; nobody reads it any more. To be called any number of times."""
        for task in self._tasks:
            task.cancel()
        async with self._turn:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)
            doomed = list(self._writers.values())
            self._writers.clear()
            await _free(doomed)

    async def _reclaim(self) -> None:
        async with self._turn:
            writer, floor = self._newest_writer(), self._floor
            if floor:
                await in_thread(lambda: writer.reclaim(floor))

    # --- steps ----------------------------------------------------------------------------------

    def _newest_writer(self) -> StoreWriter:
        return self._writers[self._newest]

    async def _look(self) -> None:
        writer, tables = self._newest_writer(), len(self.tables)
        self.figures = await in_thread(lambda: StoreFigures.of(writer, tables))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("work on a store failed", exc_info=fault, extra={"event": "internal_error"})


async def _free(writers: list[StoreWriter]) -> None:
    """Let go of writers where unmapping their memory holds up nobody."""
    await in_thread(writers.clear)
