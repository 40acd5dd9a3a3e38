"""Connections that were used once and then say nothing: held open, counted, used once more."""

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

__all__ = ["IdleConnections", "idle_connections"]

_BURST: Final = 256  # connections that are made, or used, at a time
_REQUEST: Final = b"GET /v2/health/live HTTP/1.1\r\nHost: idle\r\n\r\n"


class IdleConnections:
    """Open connections, each of which was answered once.

    Args:
        sockets: owned by whoever opened them.
    """

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets

    def use_again(self, timeout_s: float) -> int:
        """Send a request on each, and return how many were not answered with 200 in time."""
        return sum(
            _failures(self._sockets[first : first + _BURST], timeout_s)
            for first in range(0, len(self._sockets), _BURST)
        )


@contextmanager
def idle_connections(address: str, count: int, timeout_s: float) -> Iterator[IdleConnections]:
    """Open `count` connections and use each once.

    Needs as many descriptors here and in the server.

    Raises:
        OSError: a connection was not made, or not answered.
    """
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        for first in range(0, count, _BURST):
            burst = [
                stack.enter_context(socket.create_connection((host, int(port)), timeout_s))
                for _ in range(min(_BURST, count - first))
            ]
            if failures := _failures(burst, timeout_s):
                raise OSError(f"{failures} connections were not answered behind {first} others")
            sockets += burst
        yield IdleConnections(sockets)


def _failures(sockets: list[socket.socket], timeout_s: float) -> int:
    """Use `sockets` at once and count those that are not answered with 200."""
    good = 0
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            try:
                one.sendall(_REQUEST)
            except OSError:  # closed meanwhile
                continue
            selector.register(one, selectors.EVENT_READ)
        end = time.monotonic() + timeout_s
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                answered = key.fileobj
                assert isinstance(answered, socket.socket)
                selector.unregister(answered)
                try:
                    good += answered.recv(4096).startswith(b"HTTP/1.1 200 ")
                except OSError:
                    continue
    return len(sockets) - good
