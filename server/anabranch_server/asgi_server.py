"""A uvicorn server driven by our own loop instead of driving it; a port of its own is optional."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from anabranch_server.limits import Limits
from anabranch_server.side_protocol import side_protocol
from anabranch_wire.errors import Unavailable

__all__ = ["BACKLOG", "AsgiServer"]

BACKLOG: Final = 2048
"""Connections that the kernel keeps for a port until they are taken."""

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
    """Answers from `start` to `stop`; everything belongs to the thread of one event loop.

    Args:
        app: answers requests.
        listener: bound to where to listen; this server owns and closes it. None for a door whose
            connections someone else accepts: they are made with `new_connection`.
        limits: bounds on what callers may send.
        protocol: protocol class of a data door; None for that of the other ports.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket | None,
        limits: Limits,
        protocol: type[asyncio.Protocol] | None = None,
    ) -> None:
        self._listener = listener
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
                backlog=BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_S,
            )
        )
        self._running: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """Open connections."""
        return len(self._server.server_state.connections)

    def new_connection(self) -> asyncio.Protocol:
        """Return the protocol of one more connection; only between `start` and `stop`."""
        server = self._server
        make = cast(Callable[..., asyncio.Protocol], server.config.http_protocol_class)
        return make(
            config=server.config,
            server_state=server.server_state,
            app_state=server.lifespan.state,
        )

    async def start(self) -> None:
        """Listen, and return once connections are taken.

        Raises:
            Unavailable: the port cannot be listened on.
        """
        listeners = [] if self._listener is None else [_listen(self._listener)]
        self._running = asyncio.create_task(self._server.serve(listeners))
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


def _listen(bound: socket.socket) -> socket.socket:
    try:
        bound.listen(BACKLOG)
        # Connections inherit this; those that are still closing would keep the next server out.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        raise Unavailable(f"{bound.getsockname()}: {error.strerror}") from None
    bound.setblocking(False)
    return bound
