"""What wakes a model's keeper, and who is in a hurry: shared by its task and its steps."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from anabranch_wire.errors import AnabranchError, Conflict

__all__ = ["GAVE_WAY", "Waking"]

GAVE_WAY: Final = Conflict("it was given up for a rollback or an unload that followed")
"""What work ends with that others were not to wait for."""


class Waking:
    """Belongs to the event loop.

    Attributes:
        news: set when there may be something new to see; cleared where that is looked at.
        urges: actions that wait to begin and go before what loaders are at.
        is_urgent: whether such an action is at work: deltas that it does not need come after it.
    """

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.urges = 0
        self.is_urgent = False

    async def unless_urged(
        self,
        work: Coroutine[Any, Any, AnabranchError | None],
        turn: asyncio.Lock,
        meanwhile: Callable[[], Awaitable[object]] | None = None,
        wait_s: Callable[[], float | None] = lambda: None,
    ) -> AnabranchError | None:
        """Do work that may take minutes; it is given up where somebody is in a hurry.

        Args:
            work: what to do; closed where it is not even begun.
            turn: held by whoever must not be cancelled in the middle.
            meanwhile: done at every piece of news; None: nothing is.
            wait_s: how long to wait for news at most before that is done again; None: for ever.

        Returns:
            What the work returns, or `GAVE_WAY`.
        """
        if self.urges:
            work.close()
            return GAVE_WAY
        working = asyncio.ensure_future(work)
        is_woken = False
        try:
            while not await self._wait_beside(working, wait_s()):
                if self.urges:
                    async with turn:
                        working.cancel()
                    return GAVE_WAY
                is_woken = is_woken or self.news.is_set()
                self.news.clear()
                if meanwhile is not None:
                    await meanwhile()
            return await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            if is_woken:  # it may have been about more than was done meanwhile
                self.news.set()

    async def _wait_beside(self, work: asyncio.Future[Any], timeout_s: float | None) -> bool:
        """Wait for news or until `work` is done; returns whether it is."""
        waking = asyncio.ensure_future(self.news.wait())
        both: set[asyncio.Future[Any]] = {work, waking}
        try:
            await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
        return work.done()
