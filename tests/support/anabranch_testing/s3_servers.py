"""An S3-compatible object store on loopback, which says what was asked of it and can go away.

Objects live in the memory of the process that started it: `moto` answers, over real HTTP, to any
client. It honours `If-None-Match: *` and ranges.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

__all__ = ["Asked", "S3Server", "s3_server"]

_KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-no-log-may-hold",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "1",
}


@dataclass(slots=True)
class Asked:
    """A request.

    Attributes:
        method: of HTTP.
        key: of the object; "" where it was about the bucket.
        query: what stood behind the `?`.
        range: which bytes of the object were asked for; "" for all.
        status: of the answer; 0 until there is one.
        bytes: of the answer's body that have been sent.
    """

    method: str
    key: str
    query: str
    range: str
    status: int = 0
    bytes: int = 0


@dataclass
class S3Server:
    """A running store with one bucket.

    Attributes:
        url: `s3://BUCKET`.
        endpoint: `http://127.0.0.1:PORT`.
        environ: what a client process needs in its environment to reach it, keys included.
        asked: every request, the oldest first; to be cleared at will.
        chunk_s: wait before each 64 KiB of an answer, so that others come between.
    """

    url: str
    endpoint: str
    environ: Mapping[str, str]
    asked: list[Asked] = field(default_factory=list)
    chunk_s: float = 0.0
    _app: Callable[..., Iterable[bytes]] = field(kw_only=True, repr=False)
    _server: BaseWSGIServer | None = field(default=None, repr=False)

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self.url.removeprefix("s3://")

    @property
    def storage_options(self) -> dict[str, object]:
        """What `fsspec.filesystem("s3", ...)` needs, where the environment is another."""
        return {
            "key": _KEYS["AWS_ACCESS_KEY_ID"],
            "secret": _KEYS["AWS_SECRET_ACCESS_KEY"],
            "client_kwargs": {"endpoint_url": self.endpoint, "region_name": "us-east-1"},
        }

    def go(self) -> None:
        """Stop answering: connections are refused, what lies in the store stays."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def come(self) -> None:
        """Answer, at the port of before."""
        if self._server is None:
            port = int(self.endpoint.rpartition(":")[2])
            self._server = _serve(port, self._answer)

    def got(self, suffix: str = "") -> int:
        """Return the bytes of objects, of those whose key ends so, that were sent."""
        return sum(
            one.bytes for one in list(self.asked) if one.method == "GET" and _ends(one, suffix)
        )

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterator[bytes]:
        asked = Asked(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"].removeprefix(f"/{self.bucket}").removeprefix("/"),
            environ["QUERY_STRING"],
            environ.get("HTTP_RANGE", ""),
        )
        self.asked.append(asked)

        def note(status: str, headers: list[tuple[str, str]], *rest: object) -> object:
            asked.status = int(status.split()[0])
            return start(status, headers, *rest)

        for block in self._app(environ, note):
            for begin in range(0, len(block), 1 << 16):
                if self.chunk_s:
                    time.sleep(self.chunk_s)
                piece = block[begin : begin + (1 << 16)]
                asked.bytes += len(piece)
                yield piece


@contextmanager
def s3_server(bucket: str = "models") -> Iterator[S3Server]:
    """Run an empty store with one bucket. Meanwhile the environment of this process names it."""
    from moto.backends import get_backend
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    get_backend("s3").reset()
    app = DomainDispatcherApplication(create_backend_app)
    server = _serve(0, lambda environ, start: store._answer(environ, start))
    endpoint = f"http://127.0.0.1:{server.server_port}"
    environ = {**_KEYS, "AWS_ENDPOINT_URL": endpoint}
    store = S3Server(f"s3://{bucket}", endpoint, environ, _app=app)
    store._server = server
    try:
        with patch.dict(os.environ, environ):
            _make_bucket(store)
            yield store
    finally:
        store.go()
        _forget_clients()


def _make_bucket(store: S3Server) -> None:
    import httpx

    httpx.put(
        f"{store.endpoint}/{store.bucket}",
        headers={
            "Authorization": f"AWS4-HMAC-SHA256 Credential={_KEYS['AWS_ACCESS_KEY_ID']}"
            "/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        },
    ).raise_for_status()
    store.asked.clear()


def _forget_clients() -> None:
    """File systems are kept by their arguments, which know nothing of the environment."""
    import fsspec

    with suppress(ImportError):
        from s3fs import S3FileSystem

        S3FileSystem.clear_instance_cache()
    fsspec.AbstractFileSystem.clear_instance_cache()


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:
        """Say nothing: `asked` does."""


def _serve(port: int, app: Callable[..., Iterable[bytes]]) -> BaseWSGIServer:
    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=_Quiet)
    server.daemon_threads = True  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


def _ends(asked: Asked, suffix: str) -> bool:
    return bool(asked.key) and asked.key.endswith(suffix)
