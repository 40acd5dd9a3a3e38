"""The asyncio client on real connections: what is kept, closed, lost and cancelled."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from anabranch_client import AsyncClient, ClientOptions, RetryRules
from anabranch_wire.errors import DeadlineExceeded, Internal, Unavailable

OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
ONCE: Final = ClientOptions(retries=RetryRules(attempts=1))

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers requests by the bytes in `answers`, the last one for ever.

    Attributes:
        connections: opened so far.
        requests: heads that came.
        asked: set when a request came.
        ended: set when a client closed its connection.
    """

    def __init__(self, *answers: bytes, close_after: bool = False) -> None:
        self.answers = list(answers)
        self.close_after = close_after
        self.connections = 0
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                self.asked.set()
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer:
                    writer.write(answer)
                    await writer.drain()
                if self.close_after:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.set()
        finally:
            writer.close()


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[str]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def test_a_connection_is_kept_and_closed_with_the_client() -> None:
    async def scenario() -> None:
        server = Server(OK)
        async with opened(server) as url:
            async with AsyncClient(url) as client:
                for _ in range(5):
                    assert await client.ready()
                assert server.connections == 1
                assert not server.ended.is_set()
            await asyncio.wait_for(server.ended.wait(), 10)
            assert await client.ready()  # opens another
            assert server.connections == 2
            await client.close()

    asyncio.run(scenario())


def test_calls_at_once_have_connections_of_their_own() -> None:
    async def scenario() -> None:
        server = Server(OK)
        async with opened(server) as url, AsyncClient(url) as client:
            assert await asyncio.gather(*[client.ready() for _ in range(5)]) == [True] * 5
            assert server.connections == 5
            assert await client.ready()
            assert server.connections == 5

    asyncio.run(scenario())


def test_a_connection_that_was_closed_while_idle_is_replaced() -> None:
    async def scenario() -> None:
        server = Server(OK, close_after=True)
        async with opened(server) as url, AsyncClient(url, options=ONCE) as client:
            for _ in range(3):
                assert await client.ready()
                await asyncio.sleep(0.05)  # until the end of the connection was seen
            assert server.connections == 3

    asyncio.run(scenario())


def test_what_got_no_answer_is_sent_again_and_what_broke_off_is_not() -> None:
    async def scenario() -> None:
        lost = Server(b"", OK, close_after=True)
        async with opened(lost) as url, AsyncClient(url) as client:
            assert await client.ready()
            assert (len(lost.requests), client.counts().retries) == (2, 1)
        broken = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", OK, close_after=True)
        async with opened(broken) as url, AsyncClient(url) as client:
            with pytest.raises(Unavailable, match="ended within an answer"):
                await client.ready()
            assert len(broken.requests) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", Internal, "not an HTTP answer"),
        (b"\0\0\6\4\0\0\0\0\0", Unavailable, "speaks HTTP/2"),
    ],
)
def test_other_protocols_are_told(answer: bytes, kind: type[Exception], said: str) -> None:
    async def scenario() -> None:
        async with opened(Server(answer)) as url, AsyncClient(url) as client:
            with pytest.raises(kind, match=said):
                await client.ready()

    asyncio.run(scenario())


def test_a_late_answer_closes_the_connection_and_is_never_taken_for_the_next() -> None:
    async def scenario() -> None:
        server = Server(b"")
        async with opened(server) as url, AsyncClient(url, timeout_s=0.1) as client:
            with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.1 s"):
                await client.ready()
            await asyncio.wait_for(server.ended.wait(), 10)

    asyncio.run(scenario())


def test_a_cancelled_call_closes_its_connection() -> None:
    async def scenario() -> None:
        server = Server(b"")
        async with opened(server) as url, AsyncClient(url) as client:
            call = asyncio.ensure_future(client.ready())
            await asyncio.wait_for(server.asked.wait(), 10)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await asyncio.wait_for(server.ended.wait(), 10)

    asyncio.run(scenario())


def test_an_unreachable_server_is_unavailable_with_the_request_named() -> None:
    async def scenario() -> None:
        async with opened(Server(OK)) as url:
            pass
        async with AsyncClient(url) as client:
            with pytest.raises(Unavailable) as caught:
                await client.ready()
            assert caught.value.__notes__[0].startswith("request ")
            assert client.counts().retries == 2

    asyncio.run(scenario())
