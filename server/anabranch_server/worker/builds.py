"""Building versions beside traffic: each in a fresh thread that runs when nothing else does."""

import asyncio
import logging
from functools import partial

from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_server.processes.plans import VersionPlan
from anabranch_server.worker.plans import dense_model, examples, snapshot
from anabranch_server.worker.threads import FreshThreads

__all__ = ["Builds"]

_log = logging.getLogger(__name__)


class Builds:
    """Builds versions, a few at a time. Belongs to the event loop.

    Args:
        threads: where builds run.
        patience_s: how long a build may take at idle priority; where every processor is busy it
            would never end, so it is begun again at normal priority.
        most: builds at a time.
    """

    def __init__(self, threads: FreshThreads, patience_s: float, most: int = 2) -> None:
        self._threads = threads
        self._patience_s = patience_s
        self._places = asyncio.Semaphore(most)

    async def build(
        self, group: SessionGroup, version: VersionPlan, *, urgent: bool
    ) -> ServedVersion:
        """Build, bind, warm and measure a version.

        Cancelling gives up on it: what the thread makes is dropped.

        Args:
            group: runs it.
            version: what to build.
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
        )
        name = f"build-{version.model[:40]}"
        async with self._places:
            building = self._threads.run(name, load, idle=not urgent)
            building.add_done_callback(_forget)
            await asyncio.wait({building}, timeout=None if urgent else self._patience_s)
            if building.done():
                return building.result()
            _log.warning(
                "model %s: version %s is built at normal priority: the processors are too busy",
                version.model,
                snapshot(version),
                extra={
                    "event": "build_starved",
                    "model": version.model,
                    "after_s": self._patience_s,
                },
            )
            building = self._threads.run(name, load, idle=False)
            building.add_done_callback(_forget)
            await asyncio.wait({building})
            return building.result()


def _forget(building: asyncio.Future[ServedVersion]) -> None:
    """Look at the error of a build that nobody may be waiting for any more."""
    if not building.cancelled():
        building.exception()
