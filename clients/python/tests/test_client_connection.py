import http.client
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress

import grpc
import numpy as np
import pytest

from anabranch_client import Client
from anabranch_wire.errors import AnabranchError, Internal, TooLarge, Unavailable


@contextmanager
def raw_server(*answers: bytes) -> Iterator[str]:
    """Answers each connection with fixed bytes once it was sent something, and closes it."""
    left = list(answers)

    class Raw(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1000)
            self.request.sendall(left.pop(0) if left else b"")

    with socketserver.TCPServer(("127.0.0.1", 0), Raw) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", Unavailable),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", Unavailable),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Internal),
        (b"HTTP/1.1 999999 ?\r\n\r\n", Internal),
    ],
)
def test_broken_answers(answer: bytes, kind: type[AnabranchError]) -> None:
    with raw_server(answer) as url, Client(url) as client, pytest.raises(kind):
        client.ready()


@pytest.mark.parametrize("abrupt", [False, True])
def test_a_refusal_before_the_whole_body_was_read_is_heard(abrupt: bool) -> None:
    refusal = b'{"error": "body over 64 MiB"}'
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: %d\r\n\r\n%s" % (len(refusal), refusal)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while not abrupt and connection.recv(1 << 20):
                    pass  # else what is left unread makes the kernel reset the connection

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url) as client, pytest.raises(TooLarge, match="body over 64 MiB"):
            client.score("m", {"x": np.zeros(4 << 20, np.float32)})
        thread.join()


def test_a_grpc_port_is_told_as_such() -> None:
    door = grpc.server(ThreadPoolExecutor(1))
    port = door.add_insecure_port("127.0.0.1:0")
    door.start()
    try:
        with (
            Client(f"http://127.0.0.1:{port}") as client,
            pytest.raises(Unavailable, match="speaks HTTP/2, as gRPC ports do: expected the HTTP"),
        ):
            client.ready()
    finally:
        door.stop(None).wait()


def reset(connection: socket.socket) -> None:
    """Close a connection so that its peer's reads fail."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.parametrize("begun", [b"", b"HT", b"HTTP/1.1 200 OK\r\nContent-Le"])
@pytest.mark.parametrize("abrupt", [False, True])
def test_only_a_request_without_any_answer_is_sent_again(begun: bytes, abrupt: bool) -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    asked: list[bytes] = []

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        asked.append(connection.recv(1000))
        connection.sendall(whole)
        asked.append(connection.recv(1000))
        connection.sendall(begun)
        time.sleep(0.05)  # so that what was begun is read before the connection breaks
        reset(connection) if abrupt else connection.close()
        with suppress(TimeoutError):
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(1000))
                connection.sendall(whole)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.5 if begun else 10)
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            assert client.ready()
            # http.client takes the end of a connection for the end of a head.
            with suppress(Unavailable, Internal) if begun else nullcontext():
                assert client.ready()
        thread.join()

    assert len(asked) == (2 if begun else 3)


def test_an_answer_that_broke_off_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"
    head_read, reset = threading.Event(), threading.Event()
    read = http.client.HTTPResponse.read

    def read_after_the_reset(response: http.client.HTTPResponse) -> bytes:
        if response.length == 10:
            head_read.set()
            assert reset.wait(10)
        return read(response)

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.recv(1000)
        connection.sendall(whole)
        connection.recv(1000)
        connection.sendall(begun)
        assert head_read.wait(10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        reset.set()

    monkeypatch.setattr(http.client.HTTPResponse, "read", read_after_the_reset)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        with Client(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            assert client.ready()
            with pytest.raises(Unavailable):
                client.ready()
        thread.join()
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
