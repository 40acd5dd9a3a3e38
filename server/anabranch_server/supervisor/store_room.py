"""Rows that get more room: copied into a larger generation beside traffic, then switched to.

Invariant: a version has one growth at a time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from anabranch_server.processes.plans import GenerationPlan
from anabranch_server.supervisor.alterations import Alteration, Growing
from anabranch_server.supervisor.store_growth import grown, is_short
from anabranch_server.supervisor.version_store import VersionStore
from anabranch_wire.errors import AnabranchError, NotFound

__all__ = ["CurrentStores", "Decide", "StoreRoom", "Switcher"]

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 10.0
"""After room could not be made."""

Decide = Callable[[int], Awaitable[None]]
CurrentStores = Callable[[str], Sequence[tuple[GenerationPlan, VersionStore]]]


class Switcher(Protocol):
    """Carries out changes of rows; `Transactions`."""

    async def alter(self, model: str, alteration: Alteration, decide: Decide) -> int:
        """Make a change current everywhere and return its epoch."""
        ...


@dataclass(slots=True, eq=False)
class _AtWork:
    """What is at work on the room of one model.

    Attributes:
        growing: versions whose rows are being copied.
        looking: whether there is room, or begins to make it.
    """

    growing: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    looking: asyncio.Task[None] | None = None


class StoreRoom:
    """Makes room in the stores of all models. Belongs to the event loop.

    Args:
        switcher: carries out changes of rows.
        stores: returns what is current of a model: which generation is read, and its store.
        available_bytes: memory that the machine has left; None where that is not known.
    """

    def __init__(
        self,
        switcher: Switcher,
        stores: CurrentStores,
        available_bytes: Callable[[], int | None],
    ) -> None:
        self._switcher = switcher
        self._stores = stores
        self._available_bytes = available_bytes
        self._at_work: dict[str, _AtWork] = {}

    def close(self) -> None:
        """Give up what is at work."""
        for one in self._at_work.values():
            for task in (*one.growing.values(), one.looking):
                if task is not None:
                    task.cancel()

    def forget(self, model: str) -> None:
        """Forget a model that has no store any more."""
        self._at_work.pop(model, None)

    def store(self, model: str, version: int) -> VersionStore:
        """Return the store of a version that is current.

        Raises:
            NotFound: the model has no such version in memory, or it has no tables.
        """
        for plan, store in self._stores(model):
            if plan.version == version:
                return store
        raise NotFound(f"model {model!r} has no tables of a version {version} in memory")

    def look(self, model: str) -> None:
        """Begin to make room where rows that come next might find none."""
        one = self._at_work.setdefault(model, _AtWork())
        if one.looking is None:
            one.looking = asyncio.ensure_future(self._grow_where_short(model, one))

    async def make(self, model: str, version: int, incoming: Mapping[int, int]) -> None:
        """Grow for rows that come; after a growth that is at work already.

        Args:
            model: model name.
            version: number of the version.
            incoming: table -> rows that come at most.

        Raises:
            AnabranchError: there is no memory, or workers cannot take it.
        """
        one = self._at_work.setdefault(model, _AtWork())
        while (at_work := one.growing.get(version)) is not None:
            await asyncio.wait({at_work})
            await asyncio.sleep(0)  # until it has taken itself off the list
        await self._begin(model, one, version, incoming)

    def _begin(
        self, model: str, one: _AtWork, version: int, incoming: Mapping[int, int]
    ) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._grow(model, version, incoming))
        one.growing[version] = task
        task.add_done_callback(lambda done: one.growing.pop(version, None))
        return task

    async def _grow_where_short(self, model: str, one: _AtWork) -> None:
        try:
            for plan, store in self._stores(model):
                if plan != store.newest:
                    continue  # rolled back: until that is over no rows come
                stats = await store.stats()
                if plan.version not in one.growing and is_short(stats, store.capacities):
                    await self._begin(model, one, plan.version, {})
        except AnabranchError as error:
            _log.warning(
                "model %s: its rows get no more room, and changes may be refused: %s",
                model,
                error.message,
                extra={"event": "store_short", "model": model},
            )
            await asyncio.sleep(_AGAIN_S)
        finally:
            one.looking = None

    async def _grow(self, model: str, version: int, incoming: Mapping[int, int]) -> None:
        """Copy the rows of a version into more room and switch to that."""
        store = self.store(model, version)
        number = store.newest.number
        sizes = grown(await store.stats(), store.capacities, store.most_keys, incoming)
        growth = await store.grow(sizes, self._available_bytes())
        try:
            await self._switcher.alter(
                model, Growing(version, number, growth, sizes), _nothing_to_keep
            )
        finally:
            store.give_up(growth)


async def _nothing_to_keep(epoch: int) -> None:
    """Make durable that rows are elsewhere in memory: there is nothing to it."""
