"""All models of a server, kept at what they should serve. Belongs to the event loop."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from anabranch_server.supervisor.keeper import ModelKeeper
from anabranch_server.supervisor.surroundings import Surroundings
from anabranch_server.supervisor.watching import Look, Watcher
from anabranch_wire.errors import NotFound
from anabranch_wire.names import check_model_name

__all__ = ["Keeping"]

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = 30.0
"""How much longer than `settle_s` the start waits for files that keep changing."""
_SHOWN: Final = 20


class Keeping:
    """One keeper for each model, fed by looks at the repository.

    `take` is the watcher's `on_look`; `run` has to be running.

    Args:
        around: what keepers work with.
        named: models that were asked for by name; None is all there are.
        settle_s: how long a version without a manifest must have been still.

    Raises:
        InvalidInput: a name is not one of a model.

    Attributes:
        first_look_done: set once everything the first look found was loaded or refused.
    """

    def __init__(
        self, around: Surroundings, named: Collection[str] | None, settle_s: float
    ) -> None:
        self.first_look_done = asyncio.Event()
        self._around = replace(around, in_use=self.paths)
        self._named = frozenset(check_model_name(name) for name in named or ())
        self._settle_s = settle_s
        self._keepers: dict[str, ModelKeeper] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looks = 0
        self._looked = asyncio.Event()

    @property
    def keepers(self) -> Mapping[str, ModelKeeper]:
        """Every model's keeper, by name; a copy."""
        return {
            name: keeper for name, keeper in sorted(self._keepers.items()) if not keeper.is_over
        }

    def keeper(self, model: str) -> ModelKeeper:
        """Return a model's keeper.

        Raises:
            NotFound: there is no such model; names those that there are.
        """
        keeper = self._keepers.get(model)
        if keeper is None or keeper.is_over:
            known = list(self.keepers)
            more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            listed = ", ".join(known[:_SHOWN]) + more
            raise NotFound(f"model {model[:140]!r} is not known; known: {listed or 'none'}")
        return keeper

    def paths(self) -> tuple[str, ...]:
        """Return the cached files of all versions that workers have or may be told of."""
        shelves = [keeper.kept.shelf for keeper in self._keepers.values()]
        plans = {id(plan): plan for shelf in shelves for plan in shelf.plans}
        return tuple({path for plan in plans.values() for path in plan.kept_files})

    def take(self, look: Look) -> None:
        """Tell every model what was seen."""
        adopted = {} if self._looks else self._around.switching.adopted()
        for name in sorted({*look.models, *self._named, *adopted}):
            keeper = self._keepers.get(name)
            if keeper is None or keeper.is_over:
                keeper = ModelKeeper(
                    name, self._around, adopted.get(name), is_named=name in self._named
                )
                self._keepers[name] = keeper
                self._tasks[name] = asyncio.create_task(keeper.run(), name=f"keeper of {name}")
                keeper.nudge()
        for name, keeper in list(self._keepers.items()):
            if keeper.is_over:
                del self._keepers[name], self._tasks[name]
            else:
                keeper.see(look.models.get(name))
        self._looks += 1
        self._looked.set()

    def miss(self, model: str) -> None:
        """Have a model loaded again that a worker could not prepare."""
        keeper = self._keepers.get(model)
        if keeper is not None:  # else it is seen to when the keeper begins
            keeper.nudge()

    def nudge(self) -> None:
        """Have every model look again at what is to be done, as when workers came or went."""
        for keeper in self._keepers.values():
            keeper.nudge()

    async def run(self, watcher: Watcher) -> None:
        """Watch and keep until cancelled.

        Args:
            watcher: calls `take`.
        """
        watching = asyncio.create_task(watcher.run(), name="watcher")
        try:
            await self._first_look()
            await watching
        finally:
            tasks = [watching, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _first_look(self) -> None:
        """Wait until what lay there at the start is served or refused."""
        await self._looked.wait()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._settle_s + _PATIENCE_S
        is_said = False
        while True:
            self._looked.clear()
            for keeper in list(self._keepers.values()):
                await keeper.settled.wait()
            restless = [name for name, keeper in self._keepers.items() if _is_restless(keeper)]
            if not restless or loop.time() >= end_s:
                break
            if not is_said:
                self._say_what_is_waited_for(restless)
                is_said = True
            try:
                async with asyncio.timeout_at(end_s):
                    await self._looked.wait()
            except TimeoutError:
                continue
        self.first_look_done.set()

    def _say_what_is_waited_for(self, models: list[str]) -> None:
        """Log why nothing happens for some seconds."""
        _log.info(
            "waiting until the files of %s have lain still for %g s",
            f"model {models[0]}" if len(models) == 1 else f"{len(models)} models",
            self._settle_s,
            extra={"event": "settling", "models": models[:_SHOWN], "settle_s": self._settle_s},
        )


def _is_restless(keeper: ModelKeeper) -> bool:
    """Whether nothing answers only because files have not lain still for long enough."""
    kept = keeper.kept
    if kept.seen is None or not kept.seen.changing:
        return False
    return kept.state is None or kept.state.default is None
