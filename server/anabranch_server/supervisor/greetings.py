"""Workers that are there before their supervisor gives orders: what they said, who is awaited."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from anabranch_server.processes.messages import Hello, Released
from anabranch_server.supervisor.effects import WorkerId
from anabranch_server.supervisor.participants import Workers

__all__ = ["Greetings"]

_log = logging.getLogger(__name__)

_ADOPT_S: Final = 5.0
"""How long to wait for workers that might know what a shared word means."""


class Greetings:
    """What workers said before there was an agreement, and a bell for whoever waits for workers.

    Belongs to the event loop.

    Args:
        expected_workers: number of workers that the launcher keeps.
    """

    def __init__(self, expected_workers: int) -> None:
        self._expected = expected_workers
        self._hellos: dict[WorkerId, Hello] = {}
        self._releases: list[tuple[WorkerId, Released]] = []
        self._bell = asyncio.Event()

    def keep_hello(self, worker: WorkerId, hello: Hello) -> None:
        """Keep what a worker has until there is an agreement."""
        self._hellos[worker] = hello

    def keep_release(self, worker: WorkerId, released: Released) -> None:
        """Keep what a worker released until there is an agreement."""
        self._releases.append((worker, released))

    def forget(self, worker: WorkerId) -> None:
        """Drop the hello of a worker whose death is certain."""
        self._hellos.pop(worker, None)

    def take_hellos(self) -> dict[WorkerId, Hello]:
        """Return, once, what workers have that were heard so far."""
        taken, self._hellos = self._hellos, {}
        return taken

    def take_releases(self) -> list[tuple[WorkerId, Released]]:
        """Return, once, what was released so far, in order."""
        taken, self._releases = self._releases, []
        return taken

    def ring(self) -> None:
        """Wake whoever waits: a worker said hello or died, or orders can be given."""
        self._bell.set()

    async def wait(self) -> None:
        """Wait until the bell is rung."""
        self._bell.clear()
        await self._bell.wait()

    async def gather(self, pool: Workers, words: Mapping[int, int]) -> None:
        """Wait for those who served before this supervisor did, or for their death.

        Nobody may be left out: whoever answers requests has to prepare what is published next.

        Args:
            pool: knows who has not said hello.
            words: slot -> epoch of the shared words that are in use.
        """
        with suppress(TimeoutError):  # somebody has to be attached first
            async with asyncio.timeout(_ADOPT_S):
                while not self._is_enough(words):
                    await self.wait()
        elders = pool.unheard()
        while elders & pool.unheard():
            await self.wait()
        if not self._is_enough(words):
            _log.warning(
                "some of what was served is known to nobody any more and is loaded anew",
                extra={"event": "adoption_incomplete"},
            )

    def _is_enough(self, words: Mapping[int, int]) -> bool:
        """Whether everyone has come, or those who have know all that is current."""
        known = {
            held.slot
            for hello in self._hellos.values()
            for held in hello.models.values()
            if words.get(held.slot) in held.epochs
        }
        return len(self._hellos) >= self._expected or known == set(words)
