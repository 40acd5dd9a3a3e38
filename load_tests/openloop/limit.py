"""How fast this loop can be on this machine: requests a second against a server that does nothing.

That server is a process of its own and needs a core of its own; where it has none, the figure is
lower than the loop's limit.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

import uvloop

from openloop.background import measure
from openloop.http_link import HttpTransport, post
from openloop.plan import Plan

__all__ = ["measure_limit", "null_server"]

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nAnabranch-Model-Version: 1\r\n\r\n{}"
_AT_ONCE: Final = 1e9


def measure_limit(body_bytes: int, connections: int, requests: int) -> float:
    """Return how many requests a second the loop gets through when all are due at once.

    Args:
        body_bytes: size of each request's body.
        connections: kept connections.
        requests: how many to send, after a tenth of them to warm up.
    """
    with null_server() as address:
        transport = HttpTransport(address, ["Anabranch-Model-Version"])
        body = post(address, "/", bytes(body_bytes), {})
        for number in (requests // 10 + 1, requests):
            plan = Plan(
                rate=_AT_ONCE,
                seconds=60,
                connections=connections,
                timeout_s=600,
                max_requests=number,
                max_waiting=number,
            )
            result = measure(plan, transport, [body])
        return result.counts.ok.count / result.elapsed_s


@contextmanager
def null_server() -> Iterator[str]:
    """Start the server that answers whole POST requests with two bytes; yields `host:port`."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        process = subprocess.Popen(
            [sys.executable, "-m", "openloop.limit", str(listener.fileno())],
            pass_fds=(listener.fileno(),),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.terminate()
            process.wait()


class _Null(asyncio.Protocol):
    """Answers each request when as many bytes have come as its head announced."""

    def __init__(self) -> None:
        self._left = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if not self._left:
            end = data.index(b"\r\n\r\n")
            start = data.index(b"Content-Length: ") + 16
            self._left = end + 4 + int(data[start : data.index(b"\r\n", start)])
        self._left -= len(data)
        if not self._left:
            self._transport.write(_ANSWER)


async def _serve(listener: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(_Null, sock=listener)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_serve(socket.socket(fileno=int(sys.argv[1]))))
