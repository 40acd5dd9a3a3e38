"""Threads that live for one piece of work.

A thread may lower its priority but not raise it again, so work that is to stay out of the way of
requests gets a thread of its own. Such work spends its time in native code: a thread of low
priority that holds the interpreter lock holds up everyone.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from anabranch_server.processes.priorities import become_idle

__all__ = ["FreshThreads"]

T = TypeVar("T")


class FreshThreads:
    """Starts threads and says whether any is left. Belongs to the event loop."""

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work; the process should then end without waiting for it."""
        return any(thread.is_alive() for thread in self._threads)

    def run(self, name: str, work: Callable[[], T], *, idle: bool) -> asyncio.Future[T]:
        """Run `work` in a new thread.

        Args:
            name: of the thread.
            work: what to do; where nobody waits for its result any more, that is dropped.
            idle: whether to do it only when nobody else has anything to do.

        Returns:
            Its result; cancelling it does not stop the work.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(error: BaseException | None, results: list[T]) -> None:
            self._threads.discard(thread)
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(results.pop())

        def body() -> None:
            error: BaseException | None = None
            results: list[T] = []
            if idle:
                become_idle()
            try:
                results.append(work())
            except BaseException as fault:  # the edge of the thread: handed to whoever waits
                error = fault
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, error, results)

        thread = threading.Thread(target=body, name=name, daemon=True)
        self._threads.add(thread)
        thread.start()
        return future
