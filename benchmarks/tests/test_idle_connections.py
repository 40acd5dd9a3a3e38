"""Idle connections are used before and after, and what does not answer is counted."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from idle_connections import idle_connections


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    status: ClassVar[int] = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    Handler.status = 200
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_connections_that_answer_twice_are_no_failures(server: str) -> None:
    with idle_connections(server, 5, 5.0) as idle:
        assert idle.use_again(5.0) == 0


def test_what_does_not_answer_with_200_is_counted(server: str) -> None:
    with idle_connections(server, 3, 5.0) as idle:
        Handler.status = 503
        assert idle.use_again(5.0) == 3


def test_connections_that_do_not_answer_at_all_are_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(OSError, match="1 connections"), idle_connections(address, 1, 0.1):
            pass
