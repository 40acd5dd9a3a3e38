"""Building versions beside traffic: each in a fresh thread that runs when nothing else does.

Where nothing is left over for such a thread it must not run at all, see `spare_time.py`: then a
build takes its share like everybody else.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

from anabranch_runtime.batch_size import BatchCost
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_runtime.row_source import StoreView
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_server.processes.planned_models import dense_model, examples, snapshot
from anabranch_server.processes.plans import VersionPlan
from anabranch_server.worker.plans import freshness, ranking_rules
from anabranch_server.worker.spare_time import ThreadClock, spare_processors
from anabranch_server.worker.threads import FreshThreads

__all__ = ["Builds"]

_log = logging.getLogger(__name__)

_LEAST_SPARE: Final = 0.1
"""Processors without work from which on a build begins at the lowest priority."""

_LEAST_SHARE: Final = 0.1
"""Part of a processor that such a build has to get, to go on like that."""

_CHECK_S: Final = 0.25


class _Load(Protocol):
    """`SessionGroup.load` with everything but its ranking and a way to end it."""

    def __call__(
        self, *, ranking: RankingRules | None, cancellation: Cancellation
    ) -> ServedVersion: ...


class Builds:
    """Builds versions, a few at a time. Belongs to the event loop.

    Args:
        patience_s: how long a build may take at the lowest priority.
        most: builds at a time.
        spare: looks how many processors have nothing to do.
    """

    def __init__(
        self,
        patience_s: float,
        most: int = 2,
        spare: Callable[[], Awaitable[float]] = spare_processors,
    ) -> None:
        self._threads = FreshThreads()
        self._patience_s = patience_s
        self._places = asyncio.Semaphore(most)
        self._spare = spare

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work, also one that nobody waits for any more."""
        return self._threads.is_busy

    async def build(
        self, group: SessionGroup, version: VersionPlan, rows: StoreView | None, *, urgent: bool
    ) -> ServedVersion:
        """Build, bind, warm and measure a version.

        Cancelling gives up on it: what the thread makes is dropped.

        Args:
            group: runs it.
            version: what to build.
            rows: where it looks up rows; None where it does not.
            urgent: whether to do it at normal priority.

        Raises:
            AnabranchError: it cannot be built, or cannot compute its examples.
        """
        load = partial(
            group.load,
            snapshot(version),
            dense_model(version),
            examples(version),
            warm_rounds=version.warm_rounds,
            description=version.description,
            user_inputs=version.user_inputs,
            costs=[BatchCost(size, seconds) for size, seconds in version.costs],
            store=rows,
            freshness=freshness(version),
        )
        ranking = partial(ranking_rules, version)
        name = f"build-{version.model[:40]}"
        async with self._places:
            if not urgent:
                begun_s = asyncio.get_running_loop().time()
                if await self._spare() >= _LEAST_SPARE:
                    served = await self._build(name, load, ranking, idle=True)
                    if served is not None:
                        return served
                _log.warning(
                    "model %s: version %s is built at normal priority: the processors are too busy",
                    version.model,
                    snapshot(version),
                    extra={
                        "event": "build_starved",
                        "model": version.model,
                        "after_s": round(asyncio.get_running_loop().time() - begun_s, 3),
                    },
                )
            served = await self._build(name, load, ranking, idle=False)
            assert served is not None, "only what is idle is given up"
            return served

    async def rules(self, version: VersionPlan) -> RankingRules | None:
        """Return how a version ranks candidates, where its engine is there already.

        At normal priority: it takes moments, and not all of it is native.

        Raises:
            Corrupt, Unavailable: a file is damaged or cannot be read.
        """
        work = partial(ranking_rules, version)
        return await self._threads.run(f"rules-{version.model[:40]}", work, idle=False)

    async def _build(
        self,
        name: str,
        load: _Load,
        ranking: Callable[[], RankingRules | None],
        *,
        idle: bool,
    ) -> ServedVersion | None:
        """Load in a fresh thread; None where that is idle and does not get on.

        Whatever ends the waiting ends the load early.
        """
        cancellation, clock = Cancellation(), ThreadClock()

        def work() -> ServedVersion:
            clock.begin()
            return load(ranking=ranking(), cancellation=cancellation)

        building = self._threads.run(name, work, idle=idle)
        try:
            if idle and not await self._gets_on(building, clock):
                return None
            return await building
        finally:
            if building.cancel() or building.cancelled():
                cancellation.cancel()

    async def _gets_on(self, building: asyncio.Future[ServedVersion], clock: ThreadClock) -> bool:
        """Wait for an idle build; whether it came to its end."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._patience_s
        while True:
            now_s, used_s = loop.time(), clock.used_s()
            await asyncio.wait({building}, timeout=min(_CHECK_S, end_s - now_s))
            if building.done():
                return True
            passed_s = loop.time() - now_s
            if loop.time() >= end_s or clock.used_s() - used_s < _LEAST_SHARE * passed_s:
                return False
