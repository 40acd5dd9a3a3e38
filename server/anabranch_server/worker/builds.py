"""Building versions beside traffic: each in a fresh thread that runs when nothing else does."""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Protocol

from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_server.processes.plans import VersionPlan
from anabranch_server.worker.plans import dense_model, examples, snapshot
from anabranch_server.worker.threads import FreshThreads

__all__ = ["Builds"]

_log = logging.getLogger(__name__)


class _Load(Protocol):
    """`SessionGroup.load` with everything but a way to end it."""

    def __call__(self, *, cancellation: Cancellation) -> ServedVersion: ...


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
            if urgent:
                return await self._run(name, load, idle=False)
            with suppress(TimeoutError):
                return await asyncio.wait_for(self._run(name, load, idle=True), self._patience_s)
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
            return await self._run(name, load, idle=False)

    async def _run(self, name: str, load: _Load, *, idle: bool) -> ServedVersion:
        """Load in a fresh thread; cancelling ends the load early."""
        cancellation = Cancellation()
        try:
            return await self._threads.run(name, lambda: load(cancellation=cancellation), idle=idle)
        except BaseException:
            cancellation.cancel()
            raise
