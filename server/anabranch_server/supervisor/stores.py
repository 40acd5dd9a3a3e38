"""The embedding rows of every model, written here alone, as a participant of each switch.

Invariants: a generation is handed out before it is current and kept until no worker may read it;
rows change by switches only, to those of the delta that a state names; the number of a generation
is never given out twice while the launcher lives, so that what a worker has mapped is never taken
for something else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from anabranch_runtime.store import Base
from anabranch_server.processes.packets import MAX_DESCRIPTORS
from anabranch_server.processes.plans import (
    DESCRIPTORS_EACH,
    GenerationPlan,
    StatePlan,
    VersionPlan,
)
from anabranch_server.supervisor.alterations import Alteration, Growing, NoRoom, Rewriting
from anabranch_server.supervisor.delta_fills import Fills, run_fills, ways_to_fill, ways_to_make
from anabranch_server.supervisor.effects import Change
from anabranch_server.supervisor.numbering import first_number
from anabranch_server.supervisor.participants import Draft
from anabranch_server.supervisor.store_coming import Fill, with_room
from anabranch_server.supervisor.store_deltas import following
from anabranch_server.supervisor.store_growth import is_short
from anabranch_server.supervisor.store_refusals import Refusals
from anabranch_server.supervisor.store_room import Decide, StoreRoom, Switcher
from anabranch_server.supervisor.version_store import VersionStore
from anabranch_wire.errors import NotFound, TooLarge, Unavailable

__all__ = ["Stores"]

_log = logging.getLogger(__name__)

_LEAVING_S: Final = 5.0
"""How long a store that does not fit waits for rows that workers are about to release."""

_LOOK_S: Final = 0.05

_MOST: Final = (MAX_DESCRIPTORS - 1) // DESCRIPTORS_EACH
"""Versions of one model that may have stores; a packet takes no more descriptors."""

T = TypeVar("T")
_Key = tuple[int, str]
"""Version number and identity of its files."""


@dataclass(slots=True, eq=False)
class _Model:
    """The stores of one model.

    Attributes:
        stores: by version and identity.
        epochs: published epoch that may still be read -> generations that it reads.
        wanted: stores of the switch at work.
        pending: generations that it hands out.
        refusals: what did not fit.
    """

    stores: dict[_Key, VersionStore] = field(default_factory=dict)
    epochs: dict[int, tuple[GenerationPlan, ...]] = field(default_factory=dict)
    wanted: frozenset[_Key] = frozenset()
    pending: tuple[GenerationPlan, ...] = ()
    refusals: Refusals = field(default_factory=Refusals)


class Stores:
    """A `Participant`, and the way in for whoever changes rows. Belongs to the event loop.

    Args:
        base: where base rows live.
        incarnation: of this supervisor, from 1.
        available_bytes: memory that the machine has left; None where that is not known.
        fills: returns what runs change in the rows of a store, one change for each.
    """

    def __init__(
        self,
        base: Base,
        incarnation: int,
        available_bytes: Callable[[], int | None],
        fills: Fills = run_fills,
    ) -> None:
        self._base: Base = base
        self._number = first_number(incarnation)
        self._available_bytes = available_bytes
        self._fills = fills
        self._models: dict[str, _Model] = {}
        self._switcher: Switcher | None = None
        self._room: StoreRoom | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, switcher: Switcher) -> None:
        """Take what carries out changes of rows; before the first one."""
        self._switcher = switcher
        self._room = StoreRoom(switcher, self.stores, self._available_bytes)

    async def close(self) -> None:
        """Let go of everything; workers keep what they have mapped."""
        if self._room is not None:
            self._room.close()
        for model in list(self._models.values()):  # some may go meanwhile, by themselves
            for store in list(model.stores.values()):
                await store.close()
        self._models.clear()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # --- a switch -------------------------------------------------------------------------------

    async def prepare(self, draft: Draft) -> StatePlan | None:
        """See `Participant`: make what is missing, stage what changes."""
        state = draft.state
        versions = () if state is None else tuple(v for v in state.versions if v.store is not None)
        if len(versions) > _MOST:
            raise TooLarge(
                f"model {draft.model!r}: {len(versions)} versions with tables; at most {_MOST} "
                "can be in memory"
            )
        if not versions and draft.model not in self._models:
            return state
        model = self._models.setdefault(draft.model, _Model())
        model.wanted = frozenset(map(_key, versions))
        try:
            for version in versions:
                full: NoRoom | None = None
                try:
                    await self._obtain(model, version)
                except NoRoom as error:
                    full = NoRoom(error.message, version.version)
                if full is not None:  # whoever remembers it keeps no rows by it
                    model.refusals.note(version, full)
                    raise full
            if draft.alteration is not None:
                await self._alter(model, versions, draft.alteration)
        except BaseException:
            self.abort(draft.model)
            raise
        places = (model.stores[_key(one)].at(one.delta) for one in versions)
        model.pending = tuple(one for one in places if one is not None)
        assert len(model.pending) == len(versions), "each was obtained at its delta"
        return None if state is None else msgspec.structs.replace(state, generations=model.pending)

    async def apply(self, change: Change) -> None:
        """See `Participant`: change the rows that were staged."""
        model = self._models.get(change.model)
        if model is None:
            return
        state = change.state
        for version in () if state is None else state.versions:
            if state is not None and version.store is not None:
                await model.stores[_key(version)].apply(version.delta, state.retain)
        model.epochs[change.epoch] = model.pending
        model.wanted, model.pending = frozenset(), ()

    def abort(self, model: str) -> None:
        """See `Participant`."""
        known = self._models.get(model)
        if known is not None:
            for store in known.stores.values():
                store.abandon()
            known.wanted, known.pending = frozenset(), ()
            self._tidy(model)

    def release(self, model: str, floor: int) -> None:
        """See `Participant`: let go of generations and rows that nobody reads any more."""
        known = self._models.get(model)
        if known is not None:
            newest = max(known.epochs, default=0)
            for epoch in [one for one in known.epochs if one < min(floor, newest)]:
                del known.epochs[epoch]
            self._tidy(model)
            if self._room is not None and model in self._models:
                self._room.look(model)

    def descriptors(self, state: StatePlan) -> Sequence[int]:
        """See `Participant`."""
        return [
            fd
            for one in state.generations
            for fd in self._holder(one.number).descriptors(one.number)
        ]

    # --- rows -----------------------------------------------------------------------------------

    async def change(
        self,
        model: str,
        version: int,
        fill: Fill,
        decide: Decide,
        rows: Mapping[int, int] | None = None,
    ) -> int:
        """Change rows of a version that is in memory, everywhere at one moment.

        Args:
            model: model name.
            version: number of the version.
            fill: says what changes; called in a thread, perhaps a second time where there was no
                room at first. What it raises refuses the change.
            decide: makes the change durable, given the epoch.
            rows: table -> rows that change at most; room is made for them first.

        Returns:
            The epoch of the changed rows.

        Raises:
            NotFound: the model has no such version in memory, or it has no tables.
            NoRoom: the rows do not fit, and `rows` did not say so.
            AnabranchError: as `Transactions.switch` raises it; nothing has changed.
        """
        assert self._switcher is not None, "attach() comes first"
        assert self._room is not None, "made with the switcher"
        incoming = dict(rows or {})
        store = self._room.store(model, version)
        if incoming and is_short(await store.stats(), store.capacities, incoming):
            await self._room.make(model, version, incoming)
        try:
            return await self._switcher.alter(model, Rewriting(version, fill), decide)
        except NoRoom:
            if not incoming:
                raise
            await self._room.make(model, version, incoming)
            return await self._switcher.alter(model, Rewriting(version, fill), decide)

    def stores(self, model: str) -> Sequence[tuple[GenerationPlan, VersionStore]]:
        """Return what is current of a model: which generation is read, and its store."""
        known = self._models.get(model)
        if known is None or not known.epochs:
            return ()
        current = known.epochs[max(known.epochs)]
        return [(one, self._holder(one.number)) for one in current]

    def retained(self, model: str, version: int) -> tuple[int, ...]:
        """Return the deltas of a version to which a switch changes no row, rising.

        None of a version that is not in memory, or has no tables.
        """
        for plan, store in self.stores(model):
            if plan.version == version:
                return store.deltas
        return ()

    async def refresh(self) -> None:
        """Bring the figures of all stores up to date, as far as they are not at work."""
        for model in list(self._models.values()):
            for store in list(model.stores.values()):
                await store.glance()

    # --- steps ----------------------------------------------------------------------------------

    async def _obtain(self, model: _Model, version: VersionPlan) -> None:
        """Have the store of a version show its delta once the switch takes effect.

        Where no rows are retained that show it, they are made of those that there are; where that
        does not lead there, or there is no room for it, beside them.
        """
        plan, store = version.store, model.stores.get(_key(version))
        assert plan is not None, "asked for versions with a store alone"
        if store is None:

            async def create(fills: Sequence[Fill]) -> None:
                model.stores[_key(version)] = await VersionStore.create(
                    plan,
                    version.version,
                    self._next(),
                    self._base,
                    self._available_bytes(),
                    fills,
                    delta=version.delta,
                )

            ways = ways_to_make(self._fills, plan, version.runs)
            await with_room(lambda fills: self._in_memory(lambda: create(fills)), ways)
            return
        if store.at(version.delta) is not None:
            return
        runs, lacking = following(version, store.delta), ""
        if runs is not None:
            try:
                ways = ways_to_fill(self._fills, plan, runs)
                await with_room(lambda fills: store.stage(version.delta, fills), ways)
                return
            except NoRoom as error:
                lacking = error.message
        if (refused := model.refusals.of(version)) is not None:
            raise refused
        if lacking:
            _log.info(
                "model %s: the rows of version %d are made anew: %s",
                version.model,
                version.version,
                lacking,
                extra={"event": "store_renewed", "model": version.model},
            )

        async def renew(fills: Sequence[Fill]) -> None:
            await store.renew(version.delta, fills, self._next(), self._available_bytes())

        ways = ways_to_make(self._fills, plan, version.runs)
        await with_room(lambda fills: self._in_memory(lambda: renew(fills)), ways)

    async def _in_memory(self, make: Callable[[], Awaitable[T]]) -> T:
        """Make what takes memory; waits for memory that others are about to give back."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _LEAVING_S
        while True:
            leaving = self._is_leaving()  # before it is asked how much memory there is
            try:
                return await make()
            except TooLarge:
                if not leaving or loop.time() >= end_s:
                    raise
                await asyncio.sleep(_LOOK_S)

    def _is_leaving(self) -> bool:
        """Whether rows are in memory that go when workers have released them."""
        return bool(self._tasks) or any(
            len(model.epochs) > 1 or any(store.is_busy for store in model.stores.values())
            for model in self._models.values()
        )

    async def _alter(
        self, model: _Model, versions: Sequence[VersionPlan], alteration: Alteration
    ) -> None:
        """Stage a change, or take over a generation with more room."""
        version = next((one for one in versions if one.version == alteration.version), None)
        if version is None:
            raise NotFound(f"version {alteration.version} has no tables")
        store = model.stores[_key(version)]
        if version.delta != store.delta:
            raise Unavailable(f"version {version.version} was rolled back: its rows stay meanwhile")
        match alteration:
            case Rewriting(fill=fill):
                await store.stage(version.delta, [fill])
            case Growing(growth=growth, capacities=capacities, number=number):
                if store.newest.number != number:
                    raise Unavailable("the rows were made anew meanwhile")
                await store.take_over(growth, capacities, self._next())

    def _holder(self, number: int) -> VersionStore:
        """Return the store that has a generation."""
        return next(
            store
            for model in self._models.values()
            for store in model.stores.values()
            if number in store.numbers
        )

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _next(self) -> int:
        self._number += 1
        return self._number

    # --- what passes ----------------------------------------------------------------------------

    def _tidy(self, name: str) -> None:
        """Let go of what no epoch and no switch at work names."""
        model = self._models[name]
        read: dict[int, int] = {}
        for generations in (*model.epochs.values(), model.pending):
            for one in generations:
                read[one.number] = min(one.store_version, read.get(one.number, one.store_version))
        for key, store in list(model.stores.items()):
            if key in model.wanted or any(number in read for number in store.numbers):
                store.keep(read)
            else:
                del model.stores[key]
                self._spawn(store.close())
        if not model.stores and not model.wanted and not any(model.epochs.values()):
            del self._models[name]
            if self._room is not None:
                self._room.forget(name)


def _key(version: VersionPlan) -> _Key:
    return version.version, version.identity
