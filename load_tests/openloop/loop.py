"""The open loop: requests are sent when they are due, whatever has become of those before them.

A request's latency counts from its due time, so a server that stalls is charged for every request
that would have come meanwhile, and not only for those that were under way.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from openloop.answers import Answer, Outcome, Reply
from openloop.connection import Connection
from openloop.links import Transport
from openloop.plan import Plan, Result, warnings
from openloop.sender import Due, Sender
from openloop.tally import Tally

__all__ = ["run"]

_SWEEP_S: Final = 0.02


async def run(
    plan: Plan,
    transport: Transport,
    requests: Sequence[bytes],
    *,
    on_answer: Callable[[Answer], None] | None = None,
    stop: asyncio.Event | None = None,
) -> Result:
    """Open all connections, send requests as planned, wait for the last one's end.

    Args:
        plan: what to send.
        transport: to where.
        requests: sent in turn, at least one.
        on_answer: told of every request, uncounted ones too, in the event loop's thread; must be
            quick.
        stop: no request is due any more once it is set.

    Returns:
        What became of the requests.

    Raises:
        OSError: not one connection could be made within `timeout_s`.
    """
    loop = _Loop(plan, transport, tuple(requests), on_answer)
    try:
        return await loop.run(stop or asyncio.Event())
    finally:
        await loop.close()


class _Loop:
    """Which requests wait, which connections are free."""

    def __init__(
        self,
        plan: Plan,
        transport: Transport,
        requests: tuple[bytes, ...],
        on_answer: Callable[[Answer], None] | None,
    ) -> None:
        if not requests:
            raise ValueError("expected at least one request")
        self._plan = plan
        self._timeout_ns = round(plan.timeout_s * 1e9)
        self._requests = requests
        self._on_answer = on_answer
        self._tally = Tally()
        self._waiting: deque[Due] = deque()
        self._free: deque[Connection] = deque()
        self._under_way: deque[tuple[int, Connection, Due]] = deque()
        self._unfinished = 0
        self._finished = asyncio.Event()
        self._opened = 0
        self._connections = [Connection(transport, self) for _ in range(plan.connections)]

    async def run(self, stop: asyncio.Event) -> Result:
        await self._open_all()
        start_ns = time.monotonic_ns()
        cpu = time.thread_time()
        sender = Sender(self._plan, start_ns, self._begin)
        stopping = asyncio.create_task(stop.wait())
        sweeping = asyncio.create_task(self._sweep())
        try:
            ended = asyncio.create_task(sender.done.wait())
            await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            sender.close()
            seconds = (time.monotonic_ns() - start_ns) / 1e9
            while self._unfinished:
                self._finished.clear()
                await self._finished.wait()
        finally:
            sender.close()
            stopping.cancel()
            sweeping.cancel()
        elapsed = (time.monotonic_ns() - start_ns) / 1e9
        return self._result(seconds, elapsed, (time.thread_time() - cpu) / elapsed)

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        await asyncio.gather(*(connection.closed() for connection in self._connections))

    def opened(self) -> int:
        """Return the number of a new connection."""
        self._opened += 1
        return self._opened - 1

    def is_free(self, connection: Connection) -> None:
        """Use the connection for whoever waits longest."""
        if self._waiting:
            self._send(connection, self._waiting.popleft())
        else:
            self._free.append(connection)

    def is_gone(self, connection: Connection) -> None:
        """Use it no more, until it is free again."""
        if connection in self._free:
            self._free.remove(connection)

    def end(
        self, due: Due, connection: Connection | None, outcome: Outcome, reply: Reply | None = None
    ) -> None:
        """Note what became of a request."""
        answer = Answer(
            number=due.number,
            due_ns=due.due_ns,
            sent_ns=connection.sent_ns if connection else None,
            ended_ns=time.monotonic_ns(),
            outcome=outcome,
            status=reply.status if reply else None,
            recorded=reply.recorded if reply else (),
            connection=connection.number if connection else None,
            local_port=connection.local_port if connection else 0,
            body=reply.body if reply else b"",
        )
        if due.counts:
            self._tally.add(answer)
        if self._on_answer is not None:
            self._on_answer(answer)
        self._unfinished -= 1
        if not self._unfinished:
            self._finished.set()

    def _begin(self, due: Due, slip_ns: int) -> None:
        """A request is due."""
        self._unfinished += 1
        if due.counts:
            self._tally.slipped(slip_ns)
        if slip_ns > self._timeout_ns:
            self.end(due, None, "unsent")
        elif self._free:
            self._send(self._free.popleft(), due)
        elif len(self._waiting) < self._plan.max_waiting:
            self._waiting.append(due)
        else:
            self.end(due, None, "unsent")

    def _send(self, connection: Connection, due: Due) -> None:
        request = self._requests[due.number % len(self._requests)]
        self._under_way.append((due.due_ns, connection, due))
        connection.send(due, request)

    async def _sweep(self) -> None:
        """End what is past its time. Both queues are in the order of due times."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            oldest_ns = time.monotonic_ns() - self._timeout_ns
            while self._waiting and self._waiting[0].due_ns < oldest_ns:
                self.end(self._waiting.popleft(), None, "unsent")
            while self._under_way:
                due_ns, connection, due = self._under_way[0]
                if connection.due is due and due_ns >= oldest_ns:
                    break
                self._under_way.popleft()
                if connection.due is due:
                    connection.time_out()

    async def _open_all(self) -> None:
        for connection in self._connections:
            connection.open()
        opened = [asyncio.create_task(c.first_open.wait()) for c in self._connections]
        _, missing = await asyncio.wait(opened, timeout=self._plan.timeout_s)
        for task in missing:
            task.cancel()
        if not self._opened:
            raise OSError(f"no connection could be made within {self._plan.timeout_s:g} s")

    def _result(self, seconds: float, elapsed: float, share: float) -> Result:
        counts = self._tally.counts()
        seconds = max(seconds - self._plan.warm_up_s, 1e-9)
        return Result(
            rate=self._plan.rate,
            seconds=seconds,
            elapsed_s=elapsed,
            counts=counts,
            ok_per_s=counts.ok.count / seconds,
            opened=self._opened,
            cpu_share=share,
            warnings=warnings(counts, share),
        )
