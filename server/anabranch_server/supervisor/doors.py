"""The doors of a supervisor: metrics and probes, and the admin API over HTTP and gRPC."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from anabranch_server.administration import Administration
from anabranch_server.app import create_admin_app, create_metrics_app
from anabranch_server.asgi_server import AsgiServer
from anabranch_server.lifecycle import Readiness
from anabranch_server.limits import Limits
from anabranch_server.rpc.admin_door import AdminGrpcDoor

__all__ = ["SideDoors"]

_CLOSE_S: Final = 2


class SideDoors:
    """Open from `open` to `close`. Belongs to one event loop.

    Args:
        metrics: bound socket; belongs to this object.
        admin: the same for the admin port.
        grpc: address of the admin port for gRPC.
        limits: bounds on what callers may send.
    """

    def __init__(
        self, metrics: socket.socket, admin: socket.socket, grpc: str, limits: Limits
    ) -> None:
        self._metrics_socket = metrics
        self._admin_socket = admin
        self._grpc_address = grpc
        self._limits = limits
        self._servers: list[AsgiServer] = []
        self._grpc: AdminGrpcDoor | None = None

    async def open(
        self,
        readiness: Readiness,
        exposition: Callable[[], Awaitable[bytes]],
        administration: Administration,
        version: str,
    ) -> None:
        """Begin to answer; probes first, since somebody may be waiting for them.

        Args:
            readiness: what the probe asks.
            exposition: makes the Prometheus text.
            administration: answers all else.
            version: of the server.

        Raises:
            Unavailable: a port cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        metrics = await asyncio.to_thread(create_metrics_app, readiness, exposition)
        await self._serve(AsgiServer(metrics, self._metrics_socket, self._limits))
        admin = await asyncio.to_thread(create_admin_app, administration, version)
        await self._serve(AsgiServer(admin, self._admin_socket, self._limits))
        self._grpc = await asyncio.to_thread(
            AdminGrpcDoor, administration, loop, self._grpc_address, version
        )
        self._grpc.start()

    async def close(self) -> None:
        """Finish what was begun, close every connection and port."""
        closing = [server.stop(_CLOSE_S) for server in self._servers]
        if self._grpc is not None:
            closing.append(asyncio.to_thread(self._grpc.drain, _CLOSE_S))
        await asyncio.gather(*closing)

    async def _serve(self, server: AsgiServer) -> None:
        await server.start()
        self._servers.append(server)
