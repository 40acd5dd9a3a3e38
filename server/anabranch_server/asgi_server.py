"""A uvicorn server on a claimed port, driven by our own loop instead of driving it."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from anabranch_server.limits import Limits
from anabranch_server.ports import Claim
from anabranch_server.side_protocol import side_protocol
from anabranch_wire.errors import Unavailable

__all__ = ["AsgiServer"]

_BACKLOG: Final = 2048
_KEEP_ALIVE_S: Final = 75


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers (signals belong to the process), and awaitable.

    Attributes:
        listening: set once connections are taken.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on `sockets`."""
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class AsgiServer:
    """Listens from `start` to `stop`; both belong to the thread of one event loop.

    Args:
        app: answers requests.
        claim: where to listen.
        limits: bounds on what callers may send.
        protocol: protocol class of a data door; None for that of the other ports.
    """

    def __init__(
        self,
        app: ASGIApp,
        claim: Claim,
        limits: Limits,
        protocol: type[asyncio.Protocol] | None = None,
    ) -> None:
        self._claim = claim
        self._server = _Server(
            uvicorn.Config(
                app,
                http=protocol or side_protocol(limits),
                h11_max_incomplete_event_size=limits.max_header_bytes,
                loop="none",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
            )
        )
        self._running: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._server.server_state.connections)

    async def start(self) -> None:
        """Listen, and return once connections are taken.

        Raises:
            Unavailable: the port cannot be listened on.
        """
        try:
            listener = self._claim.listen(_BACKLOG)
        except OSError as error:
            raise Unavailable(f"{self._claim}: {error.strerror}") from None
        listener.setblocking(False)
        self._running = asyncio.create_task(self._server.serve([listener]))
        listening = asyncio.ensure_future(self._server.listening.wait())
        await asyncio.wait({self._running, listening}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        if self._running.done():
            await self._running  # raises what went wrong

    async def stop(self, grace_s: int) -> None:
        """Close the port, finish what was begun, close every connection.

        Args:
            grace_s: after this, connections that are still busy are cut.
        """
        if self._running is None:
            return
        self._server.config.timeout_graceful_shutdown = grace_s
        self._server.should_exit = True
        await self._running
