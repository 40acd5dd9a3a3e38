"""The admin doors on real ports, as a supervisor has them: one event loop in a thread."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from anabranch_server.administration import Administration
from anabranch_server.app import create_admin_app
from anabranch_server.asgi_server import AsgiServer
from anabranch_server.limits import Limits
from anabranch_server.rpc.admin_door import AdminGrpcDoor

__all__ = ["AdminPorts", "admin_ports"]

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class AdminPorts:
    """Listening admin doors.

    Attributes:
        http: `host:port`.
        grpc: `host:port`.
        loop: the administration's.
    """

    http: str
    grpc: str
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        """Of the HTTP door."""
        return f"http://{self.http}"

    def on_loop(self, make: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Run a coroutine on the loop and return what it does."""
        return asyncio.run_coroutine_threadsafe(make(), self.loop).result(20)


@contextmanager
def admin_ports(administration: Administration) -> Iterator[AdminPorts]:
    """Serve `administration` on free loopback ports until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="admin-loop")
    thread.start()
    listener = socket.create_server(("127.0.0.1", 0))
    http = f"127.0.0.1:{listener.getsockname()[1]}"

    async def start() -> AsgiServer:
        server = AsgiServer(create_admin_app(administration, "0.1.0"), listener, Limits())
        await server.start()
        return server

    try:
        server = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
        door = AdminGrpcDoor(administration, loop, "127.0.0.1:0", "0.1.0")
        door.start()
        try:
            yield AdminPorts(http, f"127.0.0.1:{door.port}", loop)
        finally:
            door.drain(1.0)
            asyncio.run_coroutine_threadsafe(server.stop(1), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
