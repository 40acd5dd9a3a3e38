"""A trace of all workers: asked for, waited for, put together. Belongs to the event loop."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol

from anabranch_server.processes.message import Message
from anabranch_server.processes.messages import Trace, Traced
from anabranch_server.supervisor.chrome_trace import TracedWorker, chrome_trace
from anabranch_server.supervisor.effects import WorkerId
from anabranch_wire.errors import Conflict, InvalidInput, Unavailable

__all__ = ["Crew", "Recording", "Tracer"]

_LEAST_S: Final = 0.1
_MOST_S: Final = 60.0
_LATE_S: Final = 10.0
"""How much longer than asked for workers may take to answer."""


class Recording:
    """One trace at work: who is to answer, and who has.

    Args:
        number: of the request.
        workers: who was asked -> process.
    """

    def __init__(self, number: int, workers: dict[WorkerId, int]) -> None:
        self._number = number
        self._missing = workers
        self._traced: list[TracedWorker] = []
        self._over = asyncio.Event()
        self._look()

    def take(self, worker: WorkerId, traced: Traced) -> None:
        """Take an answer; one that nobody waits for is dropped."""
        if traced.number == self._number and worker in self._missing:
            pid = self._missing.pop(worker)
            self._traced.append(TracedWorker(worker.index, pid, traced.recorded))
            self._look()

    def lose(self, worker: WorkerId) -> None:
        """Go on without a worker that is dead."""
        self._missing.pop(worker, None)
        self._look()

    async def wait(self, limit_s: float) -> list[TracedWorker]:
        """Return the answers, by worker; those that came when the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._over.wait()
        return sorted(self._traced, key=lambda traced: traced.index)

    def _look(self) -> None:
        if not self._missing:
            self._over.set()


class Crew(Protocol):
    """The workers; a `Pool`.

    Attributes:
        recording: is told what workers answer, and who died.
    """

    recording: Recording | None

    def pids(self) -> dict[WorkerId, int]:
        """Return every worker that said hello, with its process."""
        ...

    def send(self, worker: WorkerId, message: Message) -> None:
        """Say something to a worker."""
        ...


class Tracer:
    """Records one trace at a time.

    Args:
        crew: the workers.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._number = 0

    async def record(self, seconds: float) -> bytes:
        """Record what workers do for some seconds, and return Chrome's trace format, JSON.

        Raises:
            Conflict: a trace is being recorded.
            InvalidInput: too short or too long.
            Unavailable: no worker answered.
        """
        if not _LEAST_S <= seconds <= _MOST_S:
            raise InvalidInput(f"seconds {seconds:g}: expected {_LEAST_S:g} to {_MOST_S:g}")
        if self._crew.recording is not None:
            raise Conflict("a trace is being recorded; wait for its end")
        asked = self._crew.pids()
        self._number += 1
        self._crew.recording = recording = Recording(self._number, dict(asked))
        try:
            _ask(self._crew, asked, Trace(self._number, seconds))
            traced = await recording.wait(seconds + _LATE_S)
        finally:
            self._crew.recording = None
        if not traced:
            raise Unavailable("no worker answered what it did; is one alive?")
        return await asyncio.to_thread(chrome_trace, traced)


def _ask(crew: Crew, workers: Iterable[WorkerId], message: Trace) -> None:
    for worker in workers:
        crew.send(worker, message)
