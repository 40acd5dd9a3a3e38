"""What wakes a model's keeper, and who is in a hurry: shared by its task and its steps."""

import asyncio
from typing import Any

__all__ = ["Waking"]


class Waking:
    """Belongs to the event loop.

    Attributes:
        news: set when there may be something new to see; cleared where that is looked at.
        urges: actions that wait to begin and go before a version that is looked at.
    """

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.urges = 0

    async def wait_beside(self, work: asyncio.Future[Any], timeout_s: float | None) -> bool:
        """Wait for news or until `work` is done; returns whether it is."""
        waking = asyncio.ensure_future(self.news.wait())
        both: set[asyncio.Future[Any]] = {work, waking}
        try:
            await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
        return work.done()
