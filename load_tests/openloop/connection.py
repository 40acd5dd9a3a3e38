"""One kept connection, opened again whenever it ends, with the request that is under way on it."""

import asyncio
import contextlib
import time
from typing import Final, Protocol

from openloop.answers import Outcome, Reply
from openloop.links import Link, Transport
from openloop.sender import Due

__all__ = ["Connection", "ConnectionOwner"]

_FIRST_RETRY_S: Final = 0.01
_LONGEST_RETRY_S: Final = 0.32


class ConnectionOwner(Protocol):
    """Is told, in the event loop's thread."""

    def opened(self) -> int:
        """Return the number of the connection that has just been made."""
        ...

    def is_free(self, connection: "Connection") -> None:
        """The connection can carry a request."""
        ...

    def is_gone(self, connection: "Connection") -> None:
        """It cannot, until it is free again."""
        ...

    def end(
        self, due: Due, connection: "Connection", outcome: Outcome, reply: Reply | None
    ) -> None:
        """A request that it carried has ended."""
        ...


class Connection:
    """One of a loop's connections; it belongs to the event loop's thread.

    Args:
        transport: makes the links.
        owner: is told.

    Attributes:
        first_open: set once it was open.
        due: the request under way; None while it carries none.
        sent_ns: when that, or the last one, was sent.
        number: of the link it has now, each new link of the loop counting.
        local_port: of the link it has now.
    """

    def __init__(self, transport: Transport, owner: ConnectionOwner) -> None:
        self.first_open = asyncio.Event()
        self.due: Due | None = None
        self.sent_ns = 0
        self.number = -1
        self.local_port = 0
        self._transport = transport
        self._owner = owner
        self._link: Link | None = None
        self._gone = False
        self._ended = False
        self._opening: asyncio.Task[None] | None = None
        self._retry_s = 0.0
        self._last_lost = asyncio.Event()

    def open(self) -> None:
        """Try until it is open, with growing pauses."""
        self._opening = asyncio.create_task(self._open())

    def close(self) -> None:
        """End for good; `closed` waits for it."""
        self._ended = True
        if self._opening is not None:
            self._opening.cancel()
        if self._link is not None:
            self._link.close()

    async def closed(self) -> None:
        """Wait until nothing of it is left."""
        if self._opening is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._opening
        if self._link is not None:
            await self._last_lost.wait()

    def send(self, due: Due, request: bytes) -> None:
        """Send a request; the connection is free."""
        assert self._link is not None
        self.due = due
        self.sent_ns = time.monotonic_ns()
        self._link.send(request)

    def time_out(self) -> None:
        """Give the request up, and the link with it: its answer may come yet."""
        self._finish("timeout")
        if self._link is not None:
            self._link.close()

    def answered(self, reply: Reply) -> None:
        """See `LinkOwner`."""
        self._retry_s = 0.0
        self._finish("ok" if 200 <= reply.status < 300 else "status", reply)
        if self._link is None:
            return
        if reply.closes:
            self._link.close()
        else:
            self._owner.is_free(self)

    def malformed(self) -> None:
        """See `LinkOwner`."""
        self._finish("malformed")

    def lost(self) -> None:
        """See `LinkOwner`."""
        self._gone = True
        if self._link is None:  # it is being opened: `_open` sees it
            return
        self._link = None
        self._owner.is_gone(self)
        self._finish("reset")
        if self._ended:
            self._last_lost.set()
        else:
            self.open()

    async def _open(self) -> None:
        link: Link | None = None
        while link is None or self._gone:
            if self._retry_s:
                await asyncio.sleep(self._retry_s)
            # Doubles until an answer comes: a server that only accepts is no reason to spin.
            self._retry_s = min(max(2 * self._retry_s, _FIRST_RETRY_S), _LONGEST_RETRY_S)
            self._gone = False
            with contextlib.suppress(OSError):
                link = await self._transport.connect(self)
        self._link = link
        self.number = self._owner.opened()
        self.local_port = link.local_port
        self.first_open.set()
        self._owner.is_free(self)

    def _finish(self, outcome: Outcome, reply: Reply | None = None) -> None:
        due, self.due = self.due, None
        if due is not None:
            self._owner.end(due, self, outcome, reply)
