"""The doors of a worker: HTTP and gRPC, each on a port that its siblings share.

Importing this takes half of a worker's start, so it is left to a thread while the first versions
are built.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from typing import Final

from anabranch_runtime.shared_words import SharedWords
from anabranch_server.app import create_app
from anabranch_server.doors import DoorContext
from anabranch_server.http import HttpPort, Siblings
from anabranch_server.open_connections import open_connections
from anabranch_server.ports import listener_beside
from anabranch_server.processes.board import BalanceLayout
from anabranch_server.processes.boot import Boot
from anabranch_server.rpc import GrpcDoor
from anabranch_wire.errors import Unavailable

__all__ = ["Doors"]

_GRPC_THREADS: Final = 16
_QUIET_S: Final = 0.5
_POLL_S: Final = 0.05
_CLOSE_S: Final = 5
_OUTBOX: Final = "outbox"


class Doors:
    """Answer requests from `open` to `close`. Belongs to the event loop.

    Args:
        context: what requests are answered from.
        boot: where to listen, how doors behave, and the descriptors for talking to siblings, which
            belong to this object.
        queue: returns the requests that wait or are computed here.
    """

    def __init__(self, context: DoorContext, boot: Boot, queue: Callable[[], int]) -> None:
        self._context = context
        self._boot = boot
        self._queue = queue
        self._http: HttpPort | None = None
        self._grpc: GrpcDoor | None = None

    async def open(self) -> None:
        """Take connections.

        Raises:
            Conflict: another server has a port.
            Unavailable: a port cannot be listened on.
        """
        context, config, addresses = self._context, self._boot.config, self._boot.addresses
        address = addresses["grpc"]
        host = f"[{address.host}]" if ":" in address.host else address.host
        where = f"{host}:{address.port}"
        try:
            grpc = GrpcDoor(
                context,
                where,
                threads=_GRPC_THREADS,
                max_connection_age_s=config.grpc.max_connection_age_s,
            )
        except RuntimeError as error:
            raise Unavailable(f"gRPC: {where}: {error}") from None
        self._grpc = grpc
        http = HttpPort(
            context,
            create_app(context),
            listener_beside(addresses["http"]),
            _siblings(self._boot),
            config.http,
            self._queue,
        )
        await http.start()
        self._http = http
        grpc.start()

    async def drain(self, drain_s: float) -> None:
        """Keep answering for `drain_s` or until nobody is connected; ready is off before.

        A connection or call that comes and goes between two looks counts too: whoever connects
        anew for each request is served until half a second passes without one. Siblings that are
        not draining take fresh ones.
        """
        if self._http is not None:
            self._http.turn_away()
        clients = self._context.clients
        now_s, seen = time.monotonic(), clients.seen
        end_s, quiet_since_s = now_s + drain_s, now_s
        while (now_s := time.monotonic()) < end_s and now_s - quiet_since_s < _QUIET_S:
            if clients.seen != seen or self._is_connected():
                quiet_since_s, seen = now_s, clients.seen
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
        """Whether anybody is; where the kernel does not tell, gRPC counts as if it were."""
        if self._http is not None and self._http.connections:
            return True
        return self._grpc is not None and open_connections(self._boot.addresses["grpc"].port) != 0


def _siblings(boot: Boot) -> Siblings:
    """Take the descriptors for talking to the other workers."""
    fds = boot.descriptors
    balance = SharedWords.open(fds["balance"], writable=True)
    os.close(fds["balance"])
    outboxes = {
        int(name.removeprefix(_OUTBOX)): socket.socket(fileno=fd)
        for name, fd in fds.items()
        if name.startswith(_OUTBOX)
    }
    inbox = socket.socket(fileno=fds["inbox"])
    return Siblings(boot.index, BalanceLayout(boot.config.workers), balance, inbox, outboxes)
