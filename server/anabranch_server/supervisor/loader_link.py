"""The supervisor's end of the loader: one request at a time, over as many loaders as it takes.

Everything belongs to the event loop.
"""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from anabranch_model_store.memory import OutOfRoom, times_out_of_memory
from anabranch_server.processes.channel import Channel, ChannelClosed
from anabranch_server.processes.failures import error_of
from anabranch_server.processes.loader_messages import (
    PRIORITIES,
    Applied,
    ApplyDeltas,
    Found,
    FromLoader,
    LoadVersion,
    Priority,
    Progress,
    Refused,
)
from anabranch_server.supervisor.starvation import Starvation
from anabranch_wire.errors import Internal, Unavailable

__all__ = ["LoaderLink", "Request"]

_log = logging.getLogger(__name__)

_FRESH_S: Final = 20.0
"""Well below the time after which a loader without work ends by itself."""
_MOST_ANSWERS: Final = 100
"""A loader that has looked at so many versions is replaced. What libraries leave behind (ONNX
Runtime 1.32: some 14 KiB a version that is run, none of it ours to free) goes with it."""
_ATTEMPTS: Final = 2
_STARVED_S: Final = 10.0
_HURRY_S: Final = 0.5
"""The same of deltas: they are small, and wanted at once."""
_BUSY_S: Final = 300.0
"""How long the machine is taken for busy once deltas have starved."""
_LOOKS: Final = 10
"""How often within the time after which a loader counts as starved it is looked at."""

Request = LoadVersion | ApplyDeltas
"""What a loader is asked."""
_Answer = Found | Applied | Refused


class LoaderLink:
    """Has versions looked at, one after the other, in a process that may die of them.

    Args:
        start: asks the launcher for a loader, and says whether it begins as work that gives way;
            `attach` answers it.
        start_timeout_s: how long that may take.
        fresh_s: a loader that has been without work for longer is not asked any more.
        most_answers: nor one that has given so many answers.
        starved_s: how long one at idle priority may want a processor in vain, before another one
            begins again at low priority; half a second at most where it is at deltas, and those
            that follow begin at low priority then.
        complete: returns a request as it is to be sent, just before it is.

    Attributes:
        began_s: when what is at work was begun, seconds since 1970; None while nothing is.
    """

    def __init__(
        self,
        start: Callable[[bool], None],
        start_timeout_s: float = 30.0,
        fresh_s: float = _FRESH_S,
        most_answers: int = _MOST_ANSWERS,
        starved_s: float = _STARVED_S,
        complete: Callable[[Request], Request] = lambda request: request,
    ) -> None:
        self.began_s: float | None = None
        self._complete = complete
        self._start = start
        self._starved_s = starved_s
        self._fresh_s = fresh_s
        self._most_answers = most_answers
        self._start_timeout_s = start_timeout_s
        self._turn = asyncio.Lock()
        self._loader: _Loader | None = None
        self._attached = asyncio.Event()
        self._is_starting = False
        self._number = 0
        self._busy_until_s = 0.0

    @property
    def pid(self) -> int | None:
        """The loader's process; None while there is none."""
        return None if self._loader is None or self._loader.is_over else self._loader.pid

    def attach(self, pid: int, channel: int, pidfd: int) -> None:
        """Take the loader that was started; owns both descriptors from now on."""
        if self._loader is not None:
            self._loader.end()
        self._loader = _Loader(pid, channel, pidfd)
        self._is_starting = False
        self._attached.set()

    async def load(self, request: LoadVersion, on_progress: Callable[[Progress], None]) -> Found:
        """Have a version looked at. Cancelling ends the loader at work.

        Args:
            request: which version; its number is given here.
            on_progress: told how far it is.

        Raises:
            OutOfRoom: it needs more memory than `request` allows.
            AnabranchError: why the version cannot be served, as the loader found it.
            Internal: two loaders died of it.
            Unavailable: no loader could be started.
        """
        answer = await self._answer(request, on_progress)
        assert isinstance(answer, Found), "what a version is answered by"
        return answer

    async def apply(self, request: ApplyDeltas, on_progress: Callable[[Progress], None]) -> Applied:
        """Have deltas looked at. Cancelling ends the loader at work.

        Args:
            request: which deltas; its number is given here.
            on_progress: told how far it is.

        Raises:
            AnabranchError: why it could not even be begun, as the loader found it.
            Internal: two loaders died of it.
            Unavailable: no loader could be started.
        """
        answer = await self._answer(request, on_progress)
        assert isinstance(answer, Applied), "what deltas are answered by"
        return answer

    def close(self) -> None:
        """End the loader; what it works at is asked no more."""
        if self._loader is not None:
            self._loader.end()
            self._loader = None

    async def _answer(
        self, request: Request, on_progress: Callable[[Progress], None]
    ) -> Found | Applied:
        """Return what a loader found, or raise why it refuses."""
        model, version = request.model, _version(request)
        async with self._turn, self._at_work():
            killed = times_out_of_memory()
            for attempt in range(1, _ATTEMPTS + 1):
                answer = await self._ask(request, on_progress)
                if isinstance(answer, Refused):
                    if answer.tables is not None:
                        raise OutOfRoom(answer.error, answer.tables)
                    raise error_of(answer.kind, answer.error)
                if answer is not None:
                    return answer
                _log.warning(
                    "the loader died of model %s, version %d",
                    model,
                    version,
                    extra={
                        "event": "loader_died",
                        "model": model,
                        "version": version,
                        "attempt": attempt,
                    },
                )
            if times_out_of_memory() > killed:
                raise Internal(
                    f"the process that looks at versions was ended {_ATTEMPTS} times, "
                    "as the machine ran out of memory; give it more, or serve fewer versions"
                )
            raise Internal(
                f"the process that looks at versions died of this one {_ATTEMPTS} times; "
                "it may have run out of memory, or the graph makes ONNX Runtime crash"
            )

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[None]:
        self.began_s = time.time()
        try:
            yield
        finally:
            self.began_s = None

    async def _ask(
        self, request: Request, on_progress: Callable[[Progress], None]
    ) -> _Answer | None:
        """Return what a loader answers, at low priority where it gets nowhere at idle."""
        loop, is_small = asyncio.get_running_loop(), isinstance(request, ApplyDeltas)
        if is_small and request.priority == "idle" and loop.time() < self._busy_until_s:
            request = msgspec.structs.replace(request, priority="low")
        loader = await self._fresh_loader(request.priority)
        self._number += 1
        numbered = msgspec.structs.replace(self._complete(request), number=self._number)
        asking = asyncio.ensure_future(loader.ask(numbered, on_progress))
        starved_s = min(self._starved_s, _HURRY_S) if is_small else self._starved_s
        if request.priority == "idle":
            await self._watch(loader, asking, starved_s)
        if not asking.cancelled():
            return await asking
        self._loader = None
        if is_small:
            self._busy_until_s = loop.time() + _BUSY_S
        _log.warning(
            "every processor is busy: version %d of model %s is looked at at low priority",
            _version(request),
            request.model,
            extra={
                "event": "load_starved",
                "model": request.model,
                "version": _version(request),
                "after_s": starved_s,
            },
        )
        return await self._ask(msgspec.structs.replace(request, priority="low"), on_progress)

    async def _watch(
        self, loader: "_Loader", asking: asyncio.Future[_Answer | None], starved_s: float
    ) -> None:
        """Wait for the answer, and cancel `asking` where the loader starves."""
        loop, starvation = asyncio.get_running_loop(), Starvation(loader.pid)
        try:
            while not asking.done():
                if starvation.look(loop.time()) >= starved_s:
                    asking.cancel()
                await asyncio.wait({asking}, timeout=starved_s / _LOOKS)
        except asyncio.CancelledError:
            asking.cancel()
            raise

    async def _fresh_loader(self, least: Priority) -> "_Loader":
        loader = self._loader
        if loader is not None and not loader.is_over:
            is_fresh = loader.idle_s <= self._fresh_s and loader.answers < self._most_answers
            if is_fresh and PRIORITIES.index(loader.priority) >= PRIORITIES.index(least):
                return loader
            loader.end()
        self._loader = None
        self._attached.clear()
        if not self._is_starting:  # whoever asked before may have been cancelled meanwhile
            self._is_starting = True
            self._start(least != "normal")
        try:
            async with asyncio.timeout(self._start_timeout_s):
                while self._loader is None:
                    await self._attached.wait()
        except TimeoutError:
            self._is_starting = False
            raise Unavailable(
                f"no loader was started within {self._start_timeout_s:g} s; is the launcher alive?"
            ) from None
        return self._loader


class _Loader:
    """One process. It is dead when its pidfd says so, not when its channel closes."""

    def __init__(self, pid: int, channel: int, pidfd: int) -> None:
        self.pid = pid
        self.is_dead = False
        self.is_over = False  # dead, or killed just now
        self.priority: Priority = "normal"  # the lowest it had: it cannot come back up
        self.answers = 0
        self._pidfd = pidfd
        self._loop = asyncio.get_running_loop()
        self._quiet_since_s = self._loop.time()
        self._answer: asyncio.Future[_Answer | None] | None = None
        self._asked = 0
        self._on_progress: Callable[[Progress], None] = lambda progress: None
        self._channel: Channel[FromLoader] = Channel(socket.socket(fileno=channel), FromLoader)
        self._channel.attach(self._loop, self._received, self.end)
        self._loop.add_reader(pidfd, self._died)

    @property
    def idle_s(self) -> float:
        """How long it has been without work."""
        return self._loop.time() - self._quiet_since_s

    async def ask(
        self, request: Request, on_progress: Callable[[Progress], None]
    ) -> _Answer | None:
        """Return its answer; None when it died before it gave one."""
        self._answer = self._loop.create_future()
        self._asked = request.number
        if PRIORITIES.index(request.priority) < PRIORITIES.index(self.priority):
            self.priority = request.priority
        self._on_progress = on_progress
        if self.is_dead:
            return None
        try:
            with suppress(ChannelClosed):  # its death will be noticed
                self._channel.send(request)
            return await self._answer
        except asyncio.CancelledError:
            self.end()  # it cannot be told to stop
            raise
        finally:
            self._answer = None
            self._on_progress = lambda progress: None
            self._quiet_since_s = self._loop.time()

    def end(self) -> None:
        """Kill it, where it is not dead yet."""
        self.is_over = True
        if not self.is_dead:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _received(self, message: FromLoader, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)  # none belongs to these messages
        if message.number != self._asked:
            return
        if isinstance(message, Progress):
            self._on_progress(message)
        elif self._answer is not None and not self._answer.done():
            self.answers += 1
            self._answer.set_result(message)

    def _died(self) -> None:
        self.is_dead = self.is_over = True
        self._loop.remove_reader(self._pidfd)
        self._channel.close()
        os.close(self._pidfd)
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)


def _version(request: Request) -> int:
    return request.version if isinstance(request, LoadVersion) else request.plan.version
