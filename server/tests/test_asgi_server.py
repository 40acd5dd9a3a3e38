import asyncio
import socket

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from anabranch_server.asgi_server import AsgiServer
from anabranch_server.limits import Limits
from anabranch_wire.errors import Unavailable

GET = b"GET /word HTTP/1.1\r\nHost: test\r\n\r\n"


def word_app() -> FastAPI:
    app = FastAPI()

    @app.get("/word")
    async def word() -> PlainTextResponse:
        return PlainTextResponse("word")

    return app


def bound_socket() -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    return bound


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(GET)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    return head.partition(b"\r\n")[0] + b" " + await reader.readexactly(4)


def test_a_bound_socket_is_listened_on_until_the_server_stops() -> None:
    async def run() -> None:
        bound = bound_socket()
        kept = bound.dup()  # as whoever holds the port for the next server
        address = bound.getsockname()
        server = AsgiServer(word_app(), bound, Limits())
        await server.start()
        reader, writer = await asyncio.open_connection(*address)
        assert await ask(reader, writer) == b"HTTP/1.1 200 OK word"
        writer.close()
        await server.stop(1)
        assert bound.fileno() == -1

        after = AsgiServer(word_app(), kept, Limits())
        await after.start()
        reader, writer = await asyncio.open_connection(*address)
        assert await ask(reader, writer) == b"HTTP/1.1 200 OK word"
        writer.close()
        await after.stop(1)

    asyncio.run(run())


def test_a_server_without_a_port_answers_connections_that_are_given_to_it() -> None:
    async def run() -> None:
        server = AsgiServer(word_app(), None, Limits())
        await server.start()
        ours, theirs = socket.socketpair()
        await asyncio.get_running_loop().connect_accepted_socket(server.new_connection, ours)
        assert server.connections == 1
        reader, writer = await asyncio.open_connection(sock=theirs)
        assert await ask(reader, writer) == b"HTTP/1.1 200 OK word"
        stopping = asyncio.create_task(server.stop(1))
        assert await asyncio.wait_for(reader.read(1), 10) == b""
        writer.close()
        await stopping
        assert server.connections == 0

    asyncio.run(run())


def test_a_socket_that_cannot_listen_is_named() -> None:
    async def run() -> None:
        first, second = bound_socket(), socket.socket()
        first.listen(1)
        address = first.getsockname()
        second.bind(("127.0.0.1", 0))
        second.connect(address)
        server = AsgiServer(word_app(), second, Limits())
        with pytest.raises(Unavailable, match="Invalid argument"):
            await server.start()
        first.close()
        second.close()

    asyncio.run(run())
