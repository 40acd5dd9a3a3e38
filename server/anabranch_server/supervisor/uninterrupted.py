"""Work that is brought to its end although whoever waits for it is cancelled."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from anabranch_server.processes.priorities import give_way

__all__ = ["Outcome", "in_thread", "to_the_end"]

T = TypeVar("T")

_THREADS: Final = ThreadPoolExecutor(8, "beside", give_way)
"""Rows are written on the processors that answer requests: those go first."""


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


async def in_thread(
    work: Callable[[], T], discard: Callable[[T], object] = lambda result: None
) -> T:
    """Do `work` in a thread that gives way to requests; wait for its end also when cancelled.

    Args:
        work: what to do.
        discard: gives back what came of it, where it comes too late for who was cancelled.
    """
    results: list[T] = []

    async def run() -> None:
        results.append(await asyncio.get_running_loop().run_in_executor(_THREADS, work))

    outcome = await to_the_end(run())
    try:
        outcome.settle()
    except asyncio.CancelledError:
        while results:
            discard(results.pop())
        raise
    return results.pop()
