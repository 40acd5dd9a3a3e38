"""HTTP/1.1 on an event loop: a pool of kept-alive connections for each endpoint."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from anabranch_client.addresses import Address
from anabranch_client.calls import Answer, Call
from anabranch_client.connection import broken, lost, reset_on_close, spoke_http2
from anabranch_client.http_answers import BrokenOff, NotHttp, SpokeHttp2, read_answer
from anabranch_client.http_flights import IDLE, sent_headers
from anabranch_wire.errors import Internal, Unavailable

__all__ = ["AsyncHttpTransport"]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AsyncHttpTransport:
    """Pools of connections. Belongs to one event loop.

    Args:
        addresses: of the endpoints.
        connect_s: limit of opening a connection.
    """

    def __init__(self, addresses: Sequence[Address], connect_s: float) -> None:
        self._addresses: Final = tuple(addresses)
        self._connect_s: Final = connect_s
        self._idle: Final[list[list[Streams]]] = [[] for _ in addresses]
        self._round = 0

    async def send(self, endpoint: int, call: Call[object], deadline: float) -> Answer:
        """Send a call and return the whole answer; cancelling it closes the connection."""
        address = self._addresses[endpoint]
        async with asyncio.timeout(deadline - time.monotonic()):
            taken_in = self._round
            streams = self._take(endpoint) or await self._connect(address)
            kept = answered = False
            try:
                answer, kept = await _exchange(address, streams, call, deadline)
                answered = True
            finally:
                if not answered:
                    reset_on_close(streams[1].get_extra_info("socket"))
                if kept and taken_in == self._round and len(self._idle[endpoint]) < IDLE:
                    self._idle[endpoint].append(streams)
                else:
                    streams[1].transport.abort()
        return answer

    async def close(self) -> None:
        """Close idle connections; those in use are closed after it."""
        self._round += 1
        closed = [writer for idle in self._idle for _, writer in idle]
        for idle in self._idle:
            idle.clear()
        for writer in closed:
            writer.transport.abort()
        await asyncio.sleep(0)  # transports close their sockets in the loop's next turn

    def _take(self, endpoint: int) -> Streams | None:
        """Return the idle connection that was used last and is still open."""
        idle = self._idle[endpoint]
        while idle:
            reader, writer = idle.pop()
            if not (reader.at_eof() or reader.exception() or writer.is_closing()):
                return reader, writer
            writer.transport.abort()
        return None

    async def _connect(self, address: Address) -> Streams:
        connecting = asyncio.timeout(self._connect_s)
        try:
            async with connecting:
                return await asyncio.open_connection(address.host, address.port)
        except TimeoutError as error:
            if not connecting.expired():
                raise lost(address, error) from None
            raise lost(address, f"no connection within {self._connect_s:g} s") from None
        except OSError as error:
            raise lost(address, error) from None


async def _exchange(
    address: Address, streams: Streams, call: Call[object], deadline: float
) -> tuple[Answer, bool]:
    """Return the answer, and whether the connection can be used again."""
    reader, writer = streams
    headers = sent_headers(call, deadline - time.monotonic())
    head = [f"{call.method} {address.prefix}{call.path} HTTP/1.1", f"host: {address.authority}"]
    if call.body or call.method == "POST":
        headers["content-length"] = str(len(call.body))
    head += [f"{name}: {value}" for name, value in headers.items()]
    whole = True
    try:
        writer.write("\r\n".join((*head, "", "")).encode("latin-1") + call.body)
        await writer.drain()
    except ConnectionError:
        whole = False  # the server stopped reading; it may have said why
    try:
        answer, open_after = await read_answer(reader)
    except ConnectionError as error:
        raise lost(address, error) from None
    except BrokenOff as error:
        raise broken(address, Unavailable(str(error))) from None
    except SpokeHttp2:
        raise spoke_http2(address) from None
    except NotHttp as error:
        raise broken(address, Internal(f"not an HTTP answer: {error}")) from None
    return answer, open_after and whole
