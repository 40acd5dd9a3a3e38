import json
import logging
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from anabranch_publish import Publisher, publish_version
from anabranch_wire.errors import InvalidInput


class _Told(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told = (self.path, self.headers["Content-Type"], json.loads(body))
        self.server.told.append(told)  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Server(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Told)
        self.told: list[tuple[str, str, object]] = []
        self.status = 202

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def servers() -> Iterator[list[_Server]]:
    running = [_Server(), _Server()]
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in running]
    for thread in threads:
        thread.start()
    yield running
    for server, thread in zip(running, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    publish_version(tmp_path / "ctr", tmp_path / "m.onnx", version=1)
    return tmp_path / "ctr"


def test_every_server_is_told_of_what_is_published(
    servers: list[_Server], model_dir: Path, tmp_path: Path
) -> None:
    with Publisher(model_dir, version=1, notify=[server.url for server in servers]) as publisher:
        draft = publisher.delta()
        draft.publish()
        draft.publish()
        publisher.compact()
        publisher.publish_version(tmp_path / "m.onnx")

    told = ("/admin/v1/models/ctr/reload", "application/json", {"wait_s": 0})
    assert [server.told for server in servers] == [[told] * 3] * 2


def test_a_server_that_cannot_be_told_fails_nothing(
    servers: list[_Server], model_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    servers[0].status = 404
    urls = [servers[0].url, nobody, servers[1].url]
    with (
        caplog.at_level(logging.WARNING, "anabranch_publish"),
        Publisher(model_dir, version=1, notify=urls) as publisher,
    ):
        assert publisher.delta().publish() == 1

    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0].startswith(f"{servers[0].url} was not told of what is published: HTTP 404")
    assert said[1].startswith(f"{nobody} was not told of what is published: ")
    assert "Connection refused" in said[1]
    assert len(servers[1].told) == 1


@pytest.mark.parametrize("url", ["127.0.0.1:8003", "ftp://h:1", "http://h:1/x", "http://h:x", ""])
def test_only_admin_ports_are_told(model_dir: Path, url: str) -> None:
    with pytest.raises(InvalidInput, match=r"expected http://HOST:PORT of an admin port"):
        Publisher(model_dir, version=1, notify=[url])
