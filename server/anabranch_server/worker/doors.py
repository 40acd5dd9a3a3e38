"""The doors of a worker: HTTP and gRPC, each on a port that its siblings share.

Importing this takes half of a worker's start, so it is left to a thread while the first versions
are built.
"""

import asyncio
import time
from typing import Final

from anabranch_server.app import create_app
from anabranch_server.asgi_server import AsgiServer
from anabranch_server.config import GrpcConfig
from anabranch_server.doors import DoorContext
from anabranch_server.http import hot_protocol
from anabranch_server.lifecycle import Phase
from anabranch_server.open_connections import open_connections
from anabranch_server.ports import listener_beside
from anabranch_server.processes.boot import ListenAddress
from anabranch_server.rpc import GrpcDoor
from anabranch_wire.errors import Unavailable

__all__ = ["Doors"]

_GRPC_THREADS: Final = 16
_QUIET_S: Final = 0.5
_POLL_S: Final = 0.05
_CLOSE_S: Final = 5


class Doors:
    """Answer requests from `open` to `close`. Belongs to the event loop.

    Args:
        context: what requests are answered from.
        http: where to listen for HTTP; another process holds the port.
        grpc: the same for gRPC.
        told: how the gRPC door behaves.
    """

    def __init__(
        self, context: DoorContext, http: ListenAddress, grpc: ListenAddress, told: GrpcConfig
    ) -> None:
        self._context = context
        self._http_address = http
        self._grpc_address = grpc
        self._told = told
        self._http: AsgiServer | None = None
        self._grpc: GrpcDoor | None = None

    async def open(self) -> None:
        """Take connections.

        Raises:
            Unavailable: a port cannot be listened on.
        """
        context = self._context
        where = self._grpc_address
        host = f"[{where.host}]" if ":" in where.host else where.host
        try:
            grpc = GrpcDoor(
                context,
                f"{host}:{where.port}",
                threads=_GRPC_THREADS,
                max_connection_age_s=self._told.max_connection_age_s,
            )
        except RuntimeError as error:
            raise Unavailable(f"gRPC: {host}:{where.port}: {error}") from None
        http = AsgiServer(
            create_app(context),
            listener_beside(self._http_address),
            context.limits,
            hot_protocol(context),
        )
        await http.start()
        grpc.start()
        self._http, self._grpc = http, grpc

    async def drain(self, drain_s: float) -> None:
        """Keep answering for `drain_s` or until nobody is connected; ready is off before.

        A connection that comes and goes counts: whoever connects anew for each request is served
        until half a second passes without one.
        """
        assert self._context.lifecycle.phase is Phase.DRAINING
        now_s = time.monotonic()
        end_s, quiet_since_s = now_s + drain_s, now_s
        while (now_s := time.monotonic()) < end_s and now_s - quiet_since_s < _QUIET_S:
            if self._is_connected():
                quiet_since_s = now_s
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """Finish what was begun, close every connection and port."""
        doors = []
        if self._http is not None:
            doors.append(self._http.stop(_CLOSE_S))
        if self._grpc is not None:
            doors.append(asyncio.to_thread(self._grpc.drain, _CLOSE_S))
        await asyncio.gather(*doors)

    def _is_connected(self) -> bool:
        """Whether anybody is connected to this process.

        The kernel counts the gRPC connections of all workers together; where it does not tell, a
        connection counts as if it were there.
        """
        if self._http is not None and self._http.connections:
            return True
        return self._grpc is not None and open_connections(self._grpc_address.port) != 0
