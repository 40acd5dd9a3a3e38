"""The HTTP door on a real port: uvicorn in a thread, and a client that sends bytes as they are."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

from anabranch_server.doors import DoorContext
from anabranch_server.http import hot_protocol
from anabranch_server.http.tenure import Tenure

__all__ = ["HttpDoor", "Peer", "Response", "cold_app", "http_door", "infer_request"]


@dataclass
class HttpDoor:
    """A listening door.

    Attributes:
        port: on 127.0.0.1.
        server: uvicorn's.
    """

    port: int
    server: uvicorn.Server

    def stop(self) -> None:
        """Ask uvicorn to finish what it has and end."""
        self.server.should_exit = True


@contextmanager
def http_door(
    context: DoorContext,
    *,
    app: FastAPI | None = None,
    loop: Literal["uvloop", "asyncio"] = "uvloop",
    keep_alive_s: int = 5,
    tenure: Tenure | None = None,
) -> Iterator[HttpDoor]:
    """Serve `context` until the block ends.

    Args:
        context: what the door answers from.
        app: answers everything that is not hot; `cold_app()` when None.
        loop: kind of event loop.
        keep_alive_s: how long a connection may be idle.
        tenure: how long one may stay.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(
        app or cold_app(),
        http=hot_protocol(context, tenure),
        loop=loop,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive(), "uvicorn ended at once"
            assert time.monotonic() < deadline, "uvicorn did not start"
            time.sleep(0.005)
        yield HttpDoor(listener.getsockname()[1], server)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "uvicorn did not end"


def cold_app() -> FastAPI:
    """Return an application that says what it got, fast or slowly."""
    app = FastAPI()

    @app.get("/cold/{word}")
    async def cold(word: str, wait_s: float = 0.0) -> PlainTextResponse:
        await asyncio.sleep(wait_s)
        return PlainTextResponse(f"cold {word}")

    @app.post("/echo")
    async def echo(request: Request) -> PlainTextResponse:
        body = await request.body()
        return PlainTextResponse(f"{len(body)} bytes")

    return app


@dataclass(frozen=True)
class Response:
    """One response as it came.

    Attributes:
        status: status code.
        headers: by name in lower case.
        body: undecoded.
    """

    status: int
    headers: dict[str, str]
    body: bytes


class Peer:
    """The client's end of one connection. Calls block up to `timeout_s`."""

    def __init__(self, door: HttpDoor, timeout_s: float = 20.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", door.port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        self.socket.sendall(data)

    def ask(self, data: bytes) -> Response:
        """Send `data` and read one response."""
        self.send(data)
        return self.read()

    def read(self, *, has_body: bool = True) -> Response:
        """Read one response, framed by its length or by chunks.

        Raises:
            EOFError: the server closed the connection before its end.
        """
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        status = int(head[0].split(" ")[1])
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self._until(b"\r\n"), 16):
                body += self._exactly(size)
                self._exactly(2)
            self._exactly(2)
        elif has_body and status != 100:
            body = self._exactly(int(headers.get("content-length", "0")))
        return Response(status, headers, body)

    def rest(self) -> bytes:
        """Return everything up to the end of the connection, orderly or not."""
        try:
            while data := self.socket.recv(65536):
                self._received += data
        except ConnectionResetError:
            pass
        data, self._received = self._received, b""
        return data

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._received:
            self._receive()
        data, _, self._received = self._received.partition(mark)
        return data

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            self._receive()
        data, self._received = self._received[:size], self._received[size:]
        return data

    def _receive(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError(self._received)
        self._received += data


def infer_request(
    body: bytes,
    *,
    path: str = "/v2/models/scale/infer",
    json_bytes: int | None = None,
    headers: dict[str, str] | None = None,
    method: str = "POST",
    version: str = "1.1",
) -> bytes:
    """Return an infer call with `body`, as a client would send it."""
    lines = {"Host": "test", "Content-Length": str(len(body)), **(headers or {})}
    if json_bytes is not None:
        lines["Inference-Header-Content-Length"] = str(json_bytes)
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/{version}\r\n{head}\r\n".encode("latin-1") + body
