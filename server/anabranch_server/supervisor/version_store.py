"""The embedding rows of one version as their writer has them: a segment, and generations over it.

What is native runs in threads beside the event loop, one piece of work of a store at a time.
Invariants: only the newest generation changes; an older one stays as long as somebody may read it;
between the staging of a change and its end nothing else touches the store.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.store import (
    Base,
    Capacity,
    Growth,
    Keys,
    SegmentTable,
    StoreFull,
    StoreWriter,
    TableStats,
)
from anabranch_runtime.store import Change as RowChange
from anabranch_server.processes.plans import GenerationPlan, StorePlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.store_figures import StoreFigures, table_stats
from anabranch_server.supervisor.store_opening import OpenStore, open_store
from anabranch_server.supervisor.store_sizes import check_room
from anabranch_server.supervisor.uninterrupted import to_the_end
from anabranch_wire.errors import Unavailable

__all__ = ["VersionStore"]

_log = logging.getLogger(__name__)

_STEP_ROWS: Final = 200_000
"""Rows that a growth copies before others have their turn: some tens of milliseconds."""

T = TypeVar("T")
Fill = Callable[[RowChange], None]


class VersionStore:
    """One store. Belongs to the event loop.

    Made by `create`.

    Attributes:
        plan: what it was made from.
        tables: of the segment.
        figures: as they were when they were last looked at.
    """

    def __init__(self, plan: StorePlan, version: int, number: int, made: OpenStore) -> None:
        self.plan = plan
        self.tables: tuple[SegmentTable, ...] = made.segment.tables
        self.figures = made.figures
        self._descriptor = made.descriptor
        self._version = version
        self._writers = {number: made.writer}
        self._capacities = made.capacities
        self._turn = asyncio.Lock()
        self._staged: RowChange | None = None
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

        Raises:
            TooLarge: there is no memory for it; the message has the numbers.
            Unavailable: the segment is gone.
            Corrupt, Unsupported: the segment is damaged, or of a newer release.
        """
        made = await _whole(
            lambda: open_store(plan, base, available_bytes, fills),
            lambda made: os.close(made.descriptor),
        )
        return cls(plan, version, number, made)

    # --- what there is --------------------------------------------------------------------------

    @property
    def numbers(self) -> Collection[int]:
        """Generations that are alive, the newest last."""
        return self._writers.keys()

    @property
    def newest(self) -> GenerationPlan:
        """The generation that changes, at its last version."""
        number = max(self._writers)
        return GenerationPlan(self._version, number, self._writers[number].version)

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

    @property
    def staged_version(self) -> int | None:
        """Store version that the staged change will make, if there is one."""
        return None if self._staged is None else self._staged.version

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
            return await _whole(lambda: table_stats(writer, tables))

    async def look(self) -> StoreFigures:
        """Look how the store stands, when nothing is at work on it any more."""
        async with self._turn:
            await self._look()
        return self.figures

    async def glance(self) -> StoreFigures:
        """Return how the store stands, or stood before what is at work on it."""
        return self.figures if self._turn.locked() else await self.look()

    # --- changes --------------------------------------------------------------------------------

    async def stage(self, fill: Fill) -> None:
        """Prepare a change of rows; `apply` or `abandon` has to follow.

        Raises:
            NoRoom: it does not fit.
            AnabranchError: what `fill` raises.
        """
        writer = self._newest_writer()

        def prepare() -> RowChange:
            change = writer.begin()
            try:
                fill(change)
            except BaseException:
                change.close()
                raise
            return change

        await self._turn.acquire()
        try:
            self._staged = await _whole(prepare, RowChange.close)
        except BaseException as error:
            self._turn.release()
            if isinstance(error, StoreFull):
                raise NoRoom(error.message) from None
            raise

    async def apply(self) -> None:
        """Make the staged change, if there is one. Does not fail."""
        change = self._staged
        if change is not None:
            try:
                await _whole(change.apply)
            finally:
                self._staged = None
                self._turn.release()

    def abandon(self) -> None:
        """Give back what the staged change reserved, if there is one."""
        change, self._staged = self._staged, None
        if change is not None:
            self._spawn(self._give_back(change))

    async def _give_back(self, change: RowChange) -> None:
        try:
            await _whole(change.close)
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
                growth = await _whole(lambda: writer.grow(capacities), Growth.close)
            except OSError as error:
                text = f"the tables get no more room: {error.strerror}"
                raise Unavailable(text) from None
        try:
            while True:
                async with self._turn:
                    if await _whole(lambda: growth.step(_STEP_ROWS)):
                        return growth
        except BaseException:
            self._spawn(self._end(growth))
            raise

    async def take_over(self, growth: Growth, capacities: Sequence[Capacity], number: int) -> None:
        """Go on with the new generation: from now on it is the one that changes.

        So it is where this was cancelled meanwhile: what was finished cannot be taken back.

        Raises:
            NoRoom: more has changed meanwhile than there is room for.
        """

        def go_on(writer: StoreWriter) -> None:
            self._writers[number] = writer
            self._capacities = tuple(capacities)
            self._floor = 0

        async with self._turn:
            try:
                go_on(await _whole(growth.finish, go_on))
            except StoreFull as error:
                raise NoRoom(error.message) from None
            await self._look()

    def give_up(self, growth: Growth) -> None:
        """End a growth that nobody takes over."""
        self._spawn(self._end(growth))

    async def _end(self, growth: Growth) -> None:
        async with self._turn:
            await _whole(growth.close)

    # --- what passes ----------------------------------------------------------------------------

    def keep(self, read: Mapping[int, int]) -> None:
        """Let go of what nobody reads any more.

        Args:
            read: number of each generation that somebody may read -> the oldest store version.
        """
        newest = max(self._writers)
        doomed = [
            self._writers.pop(number)
            for number in list(self._writers)
            if number != newest and number not in read
        ]
        if doomed:
            self._spawn(_free(doomed))
        floor = read.get(newest, 0)
        if floor > self._floor:
            self._floor = floor
            self._spawn(self._reclaim())

    async def close(self) -> None:
        """Let go of everything; nobody reads it any more."""
        for task in self._tasks:
            task.cancel()
        async with self._turn:
            os.close(self._descriptor)
            doomed = list(self._writers.values())
            self._writers.clear()
            await _free(doomed)

    async def _reclaim(self) -> None:
        async with self._turn:
            writer, floor = self._newest_writer(), self._floor
            if floor:
                await _whole(lambda: writer.reclaim(floor))

    # --- steps ----------------------------------------------------------------------------------

    def _newest_writer(self) -> StoreWriter:
        return self._writers[max(self._writers)]

    async def _look(self) -> None:
        writer, tables = self._newest_writer(), len(self.tables)
        self.figures = await _whole(lambda: StoreFigures.of(writer, tables))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("work on a store failed", exc_info=fault, extra={"event": "internal_error"})


async def _whole(work: Callable[[], T], discard: Callable[[T], object] = lambda result: None) -> T:
    """Do `work` in a thread, and wait for its end also when cancelled.

    Args:
        work: what to do.
        discard: gives back what came of it, where it comes too late for who was cancelled.
    """
    results: list[T] = []

    async def run() -> None:
        results.append(await asyncio.to_thread(work))

    outcome = await to_the_end(run())
    try:
        outcome.settle()
    except asyncio.CancelledError:
        while results:
            discard(results.pop())
        raise
    return results.pop()


async def _free(writers: list[StoreWriter]) -> None:
    """Let go of writers where unmapping their memory holds up nobody."""
    await asyncio.to_thread(writers.clear)
