"""Threads for bodies that take long to decode, so that the loop need not wait for them.

What waits is bounded, and what nobody waits for any more is not decoded: a job is handed to a
thread only when one is free, and can be withdrawn until then.
"""

import asyncio
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final
from typing import Protocol as Interface

from anabranch_server.http.bodies import Decoded
from anabranch_wire.errors import Overloaded

__all__ = ["MAX_WAITING", "Decoders", "Job"]

MAX_WAITING: Final = 128
_THREADS: Final = 2


class Job(Hashable, Interface):
    """A body to decode."""

    def decode(self) -> Decoded:
        """Decode it; a decoder's thread calls this once."""
        ...

    def decoded(self, future: Future[Decoded]) -> None:
        """Take what came of it. Loop thread."""


class Decoders:
    """Decodes long bodies in the order they came. Belongs to the loop's thread.

    The threads are started when there is a body.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="http-decode")
        self._waiting: dict[Job, None] = {}
        self._running = 0

    def submit(self, job: Job) -> None:
        """Decode `job` when a thread is free.

        Raises:
            Overloaded: too many bodies wait.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise Overloaded(f"{MAX_WAITING} long bodies wait to be decoded")
        self._waiting[job] = None
        self._start()

    def withdraw(self, job: Job) -> None:
        """Forget `job` unless it is being decoded, or was."""
        self._waiting.pop(job, None)

    def _start(self) -> None:
        while self._waiting and self._running < _THREADS:
            job = next(iter(self._waiting))
            del self._waiting[job]
            self._running += 1
            self._pool.submit(job.decode).add_done_callback(partial(self._wake, job))

    def _wake(self, job: Job, future: Future[Decoded]) -> None:
        """Bring a decoded body back to the loop; a decoder's thread calls it."""
        with suppress(RuntimeError):  # the loop is closed: nobody is left to answer
            self._loop.call_soon_threadsafe(self._finish, job, future)

    def _finish(self, job: Job, future: Future[Decoded]) -> None:
        self._running -= 1
        self._start()
        job.decoded(future)
