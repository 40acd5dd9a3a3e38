import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from anabranch_server import side_protocol
from anabranch_server.asgi_server import AsgiServer
from anabranch_server.limits import Limits
from anabranch_server.ports import claim

GET = b"GET /word HTTP/1.1\r\nHost: test\r\n\r\n"
LIMITS = Limits(header_timeout_s=0.3)
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def side_port() -> AsyncIterator[int]:
    app = FastAPI()

    @app.get("/word")
    async def word() -> PlainTextResponse:
        await asyncio.sleep(2 * LIMITS.header_timeout_s)
        return PlainTextResponse("word")

    claimed = claim("127.0.0.1", 0, "side")
    server = AsgiServer(app, claimed.held, LIMITS)
    await server.start()
    try:
        yield claimed.port
    finally:
        await server.stop(1)


async def is_closed(peer: Peer) -> bool:
    try:
        return await asyncio.wait_for(peer[0].read(100), 10) == b""
    except ConnectionResetError:
        return True


async def dribble(peer: Peer) -> None:
    for byte in GET[:-1]:
        peer[1].write(bytes([byte]))
        await asyncio.sleep(0.05)


def test_who_never_completes_a_head_is_cut() -> None:
    async def run() -> None:
        async with side_port() as port:
            silent, half, slow = [await asyncio.open_connection("127.0.0.1", port) for _ in "123"]
            half[1].write(GET[:10])
            dribbling = asyncio.create_task(dribble(slow))
            for peer in (silent, half, slow):
                assert await is_closed(peer)
                peer[1].close()
            dribbling.cancel()

    asyncio.run(run())


def test_answers_may_take_long_and_connections_rest_between_requests() -> None:
    async def run() -> None:
        async with side_port() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):
                writer.write(GET)
                assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(4) == b"word"
                await asyncio.sleep(2 * LIMITS.header_timeout_s)
            writer.write(GET[:10])
            assert await is_closed((reader, writer))
            writer.close()

    asyncio.run(run())


def test_connections_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_protocol, "_MAX_CONNECTIONS", 2)

    async def run() -> None:
        async with side_port() as port:
            peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            assert await is_closed(peers[2])
            peers[0][1].write(GET)
            assert b"200 OK" in await peers[0][0].readuntil(b"\r\n\r\n")
            for _, writer in peers:
                writer.close()

    asyncio.run(run())
