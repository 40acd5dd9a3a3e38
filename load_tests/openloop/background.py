"""A load beside the code that disturbs the server: an open loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import uvloop

from openloop.answers import Answer
from openloop.links import Transport
from openloop.loop import run
from openloop.plan import Plan, Result

__all__ = ["Background", "measure"]


def measure(
    plan: Plan,
    transport: Transport,
    requests: Sequence[bytes],
    on_answer: Callable[[Answer], None] | None = None,
) -> Result:
    """Run the loop in the calling thread, to its end; see `run`.

    Raises:
        OSError: not one connection could be made.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(plan, transport, requests, on_answer=on_answer))


class Background:
    """Runs a loop between entering and leaving a `with` block, or until the plan's end.

    Args:
        plan: what to send.
        transport: to where.
        requests: sent in turn.
        on_answer: told of every request in the loop's thread; must be quick.
    """

    def __init__(
        self,
        plan: Plan,
        transport: Transport,
        requests: Sequence[bytes],
        on_answer: Callable[[Answer], None] | None = None,
    ) -> None:
        self._plan = plan
        self._transport = transport
        self._requests = requests
        self._on_answer = on_answer
        self._thread = threading.Thread(target=self._work, name="openloop")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._result: Result | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._end()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def finish(self) -> Result:
        """Send nothing more, wait for the requests under way, and return what was seen.

        Raises:
            OSError: not one connection could be made.
        """
        self._end()
        return self.wait()

    def wait(self) -> Result:
        """Wait for the plan's end and return what was seen.

        Raises:
            OSError: not one connection could be made.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def _end(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:  # it ended meanwhile
                return

    def _work(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                self._loop = runner.get_loop()
                self._result = runner.run(self._run())
        except BaseException as error:  # handed to whoever waits
            self._error = error
        finally:
            self._started.set()

    async def _run(self) -> Result:
        self._stop = asyncio.Event()
        self._started.set()
        return await run(
            self._plan,
            self._transport,
            self._requests,
            on_answer=self._on_answer,
            stop=self._stop,
        )
