"""HTTP/1.1 on a kept connection: whole requests go out as they are, heads of answers are read.

It understands what an inference server answers: a status line, and a body whose length is declared.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping, Sequence
from typing import Final, cast

import msgspec

from openloop.answers import Reply
from openloop.links import LinkOwner

__all__ = ["HttpTransport", "post"]

_MAX_HEAD_BYTES: Final = 65536


def post(host: str, target: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a whole POST request.

    Args:
        host: value of the Host header.
        target: path and query.
        body: may be empty.
        headers: beside Host and Content-Length.
    """
    lines = [f"POST {target} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    lines += (f"{name}: {value}" for name, value in headers.items())
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class HttpTransport:
    """Makes connections to one `host:port`.

    Args:
        address: `host:port`, an IPv6 host in brackets.
        record: names of the answer's headers whose values are recorded.
        keep_bodies: whether answers have their bodies.
    """

    def __init__(
        self, address: str, record: Sequence[str] = (), *, keep_bodies: bool = False
    ) -> None:
        host, _, port = address.rpartition(":")
        self._host = host.strip("[]")
        self._port = int(port)
        self._record = tuple(name.lower().encode() for name in record)
        self._keep_bodies = keep_bodies

    async def connect(self, owner: LinkOwner) -> "_HttpLink":
        """Return a connection with Nagle's algorithm off.

        Raises:
            OSError: no connection could be made.
        """
        _, link = await asyncio.get_running_loop().create_connection(
            lambda: _HttpLink(owner, self._record, self._keep_bodies), self._host, self._port
        )
        return link


class _HttpLink(asyncio.Protocol):
    def __init__(self, owner: LinkOwner, record: tuple[bytes, ...], keep_body: bool) -> None:
        self._owner = owner
        self._record = record
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._reply: Reply | None = None
        self._body_left = 0
        self._waits = False
        self._body: list[bytes] | None = [] if keep_body else None
        self.local_port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        own = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_port = transport.get_extra_info("sockname")[1]

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._waits = True
        self._transport.write(request)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._waits:  # such as 408 in front of the end of a connection that was idle
            self.close()
            return
        size = len(data)
        if self._reply is None:
            data = self._received + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._received = data
                if len(data) > _MAX_HEAD_BYTES:
                    self._refuse()
                return
            self._received = b""
            size = len(data) - end - 4
            try:
                self._reply, self._body_left = _read_head(data[: end + 2], self._record)
            except ValueError:
                self._refuse()
                return
            data = data[end + 4 :] if self._body is not None else b""
        if self._body is not None:
            self._body.append(data)
        self._body_left -= size
        if self._body_left < 0:
            self._refuse()
        elif self._body_left == 0:
            reply, self._reply, self._waits = self._reply, None, False
            if self._body is not None:
                reply = msgspec.structs.replace(reply, body=b"".join(self._body))
                self._body.clear()
            self._owner.answered(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.lost()

    def _refuse(self) -> None:
        self._waits = False
        self._owner.malformed()
        self.close()


def _read_head(head: bytes, record: tuple[bytes, ...]) -> tuple[Reply, int]:
    """Return the answer that `head`, every line with its end, announces, and its body's length.

    Raises:
        ValueError: it is no head, or says no length.
    """
    if not head.startswith(b"HTTP/1."):
        raise ValueError("expected a status line of HTTP/1")
    status = int(head[9:12])
    lower = head.lower()
    length = _value(head, lower, b"content-length")
    if length is None and status not in (204, 304):
        raise ValueError("expected a Content-Length")
    closes = b"\r\nconnection: close\r\n" in lower
    recorded = tuple(_value(head, lower, name) for name in record)
    return Reply(status, recorded, closes), int(length or 0)


def _value(head: bytes, lower: bytes, name: bytes) -> str | None:
    """The value of the header `name`, which is in lower case as `lower` is."""
    start = lower.find(b"\r\n%b:" % name)
    if start < 0:
        return None
    start += len(name) + 3
    return head[start : head.index(b"\r\n", start)].strip().decode("latin-1")
