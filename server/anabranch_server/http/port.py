"""The HTTP port of one worker among several: the hot door behind connections shared out evenly."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp

from anabranch_server.asgi_server import BACKLOG, AsgiServer
from anabranch_server.config import HttpConfig
from anabranch_server.doors import DoorContext
from anabranch_server.http.accepting import Acceptor
from anabranch_server.http.door import hot_protocol
from anabranch_server.http.siblings import Siblings
from anabranch_server.http.spread import HISTORY, surplus
from anabranch_server.http.tenure import Tenure
from anabranch_wire.errors import Unavailable

__all__ = ["HttpPort"]

_LOGGER: Final = logging.getLogger(__name__)

_TICK_S: Final = 0.1
_SHY_TICKS: Final = 20
"""For so long a worker with too long a queue welcomes no connections: those that it closed would
come back to it, since it has the fewest then."""


class HttpPort:
    """Answers HTTP from `start` to `stop`. Belongs to one event loop.

    Args:
        context: what hot requests are answered from.
        app: answers all others.
        listener: bound to the port with SO_REUSEPORT; closed by `stop`.
        siblings: the workers that share the port.
        told: how connections are treated.
        queue: returns the requests that wait or are computed in this worker.
    """

    def __init__(
        self,
        context: DoorContext,
        app: ASGIApp,
        listener: socket.socket,
        siblings: Siblings,
        told: HttpConfig,
        queue: Callable[[], int],
    ) -> None:
        self._siblings = siblings
        self._queue = queue
        self._tenure = Tenure(told.max_connection_age_s, siblings.closed)
        self._server = AsgiServer(app, None, context.limits, hot_protocol(context, self._tenure))
        self._listener = listener
        self._acceptor = Acceptor(listener, siblings, self._adopt)
        self._opening: set[asyncio.Task[None]] = set()
        self._history: deque[list[int]] = deque(maxlen=HISTORY)
        self._shy_ticks = 0
        self._is_leaving = False
        self._ticking: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """Open connections."""
        return self._server.connections

    async def start(self) -> None:
        """Take connections.

        Raises:
            Unavailable: the port cannot be listened on.
        """
        await self._server.start()
        try:
            self._acceptor.start(BACKLOG)
        except OSError as error:
            await self._server.stop(0)
            raise Unavailable(f"{self._listener.getsockname()}: {error.strerror}") from None
        self._ticking = asyncio.create_task(self._tick())

    def turn_away(self) -> None:
        """Leave fresh connections to siblings that take any; what is here is answered on."""
        self._is_leaving = True
        self._acceptor.be_willing(False)

    async def stop(self, grace_s: int) -> None:
        """Close the port, finish what was begun, close every connection.

        Args:
            grace_s: after this, connections that are still busy are cut.
        """
        if self._ticking is None:
            return
        self._ticking.cancel()
        self._acceptor.stop()
        if self._opening:
            await asyncio.wait(self._opening)
        await self._server.stop(grace_s)

    def _adopt(self, connection: socket.socket) -> None:
        opening = asyncio.create_task(self._open(connection))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        made = self._server.new_connection()
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: made, connection)
        except OSError:  # the caller left before it began
            connection.close()
            self._siblings.closed()

    async def _tick(self) -> None:
        """Tell siblings how it stands here, and even out what the connections' number does not."""
        while True:
            await asyncio.sleep(_TICK_S)
            try:
                self._look()
            except Exception:  # the edge of the loop
                _LOGGER.exception("internal error", extra={"event": "internal_error"})

    def _look(self) -> None:
        siblings = self._siblings
        siblings.tell_queue(self._queue())
        siblings.check_astray()
        if self._is_leaving:
            return
        self._history.append(siblings.queues())
        extra = surplus(self._history, siblings.loads(), siblings.takes(), siblings.index)
        if extra:
            self._tenure.surplus = extra
            self._history.clear()  # what comes of it shows only later
            self._shy_ticks = _SHY_TICKS
            self._acceptor.be_willing(False)
        elif self._shy_ticks:
            self._shy_ticks -= 1
            if not self._shy_ticks:
                self._tenure.surplus = 0
                self._acceptor.be_willing(True)
