"""Work that is brought to its end although whoever waits for it is cancelled."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

__all__ = ["Outcome", "to_the_end"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended.

    Attributes:
        failure: what it raised.
        cancelled: set where the waiting was cancelled meanwhile.
    """

    failure: BaseException | None
    cancelled: asyncio.CancelledError | None

    def settle(self) -> None:
        """Raise what is owed: the cancellation first, then the failure."""
        if self.cancelled is not None:
            raise self.cancelled
        if self.failure is not None:
            raise self.failure


async def to_the_end(work: Awaitable[object]) -> Outcome:
    """Do `work` and return how it ended; raises nothing."""
    doing = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError as error:
            cancelled = error
    if doing.cancelled():
        return Outcome(asyncio.CancelledError(), cancelled)
    return Outcome(doing.exception(), cancelled)
