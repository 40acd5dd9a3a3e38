"""One kept-alive HTTP connection to a server, with a time limit per exchange."""

import http.client
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from anabranch_wire.errors import DeadlineExceeded, Internal, InvalidInput, Unavailable

__all__ = ["Answer", "Connection"]

_SETTINGS: Final = b"\4"
"""Type of the frame that an HTTP/2 server begins with, behind its length (RFC 9113, 3.4, 4.1)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server sent back.

    Attributes:
        status: HTTP status.
        headers: with lower-case names; of a repeated one the last.
        body: whole.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Http2(http.client.HTTPException):
    """The server spoke first, and HTTP/2."""


class _Response(http.client.HTTPResponse):
    """An answer whose beginning tells an idle connection that was closed from one that broke."""

    def begin(self) -> None:
        """Read the head.

        Raises:
            ConnectionError: not a byte of an answer came.
            HTTPException: what came is no answer, or broke off.
        """
        first = self.fp.peek(1)
        if not first:
            raise http.client.RemoteDisconnected("the server closed the connection")
        if first[:1] == b"\0" and first[3:4] == _SETTINGS:
            raise _Http2
        with _begun():
            super().begin()


@contextmanager
def _begun() -> Iterator[None]:
    """Make broken connections broken answers, which are not asked for again."""
    try:
        yield
    except ConnectionError as error:
        raise http.client.IncompleteRead(b"") from error


class Connection:
    """Owner of one socket, opened on first use. For one thread at a time.

    Attributes:
        prefix: path that the URL puts before every other; empty, or with a leading slash.
    """

    def __init__(self, url: str) -> None:
        """Raises InvalidInput: `url` is not `http://HOST[:PORT][/PREFIX]`."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidInput(f"url {url!r}: {error}") from None
        extras = (parts.username, parts.password, parts.query, parts.fragment)
        if parts.scheme != "http" or not parts.hostname or any(extras):
            raise InvalidInput(f"url {url!r}: expected http://HOST[:PORT][/PREFIX]")
        self._address: Final = f"{parts.hostname}:{port or 80}"
        self.prefix: Final = parts.path.rstrip("/")
        self._http: Final = http.client.HTTPConnection(parts.hostname, port or 80)
        self._http.response_class = _Response

    def close(self) -> None:
        """Close the socket; the next exchange opens another."""
        self._http.close()

    def exchange(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send a request and return the whole answer, whatever its status.

        A server may close an idle connection at any time. So a request that fails on one that was
        used before, without a byte of an answer, is sent once more on a new one: every request has
        to be one that may be carried out twice.

        Args:
            method: HTTP verb.
            path: below the URL's prefix, percent-encoded.
            body: sent with its length.
            headers: beside those that HTTP itself needs.
            timeout_s: from now to the last byte of the answer, looked at while none comes; None
                waits for ever.

        Raises:
            DeadlineExceeded: `timeout_s` passed.
            Unavailable: the server cannot be reached, or the connection broke.
            Internal: what came back is not HTTP.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        used_before = self._http.sock is not None
        try:
            try:
                return self._once(method, path, body, headers or {}, deadline)
            except (http.client.RemoteDisconnected, ConnectionError):
                if not used_before:
                    raise
                self._http.close()
                return self._once(method, path, body, headers or {}, deadline)
        except TimeoutError:
            self._http.close()
            raise DeadlineExceeded(f"{self._address}: no answer within {timeout_s} s") from None
        except (http.client.IncompleteRead, OSError) as error:
            self._http.close()
            raise Unavailable(f"{self._address}: {error}") from None
        except _Http2:
            self._http.close()
            raise Unavailable(
                f"{self._address} speaks HTTP/2, as gRPC ports do: expected the HTTP port, 8000 "
                "unless the server was told another"
            ) from None
        except http.client.HTTPException as error:
            self._http.close()
            raise Internal(f"{self._address}: not an HTTP answer: {error!r}") from None

    def _once(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        deadline: float | None,
    ) -> Answer:
        self._limit(deadline)
        if self._http.sock is None:
            self._http.connect()
        sent = False
        try:
            self._http.request(method, self.prefix + path, body or None, dict(headers))
            sent = True
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server stopped reading; it may have said why (a body over its limit)
        self._limit(deadline)
        response = self._http.getresponse()
        self._limit(deadline)
        found = {name.lower(): value for name, value in response.getheaders()}
        with _begun():
            answer = Answer(response.status, found, response.read())
        if not sent:
            self._http.close()
        return answer

    def _limit(self, deadline: float | None) -> None:
        """Let the next blocking step end at the deadline."""
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise TimeoutError
        self._http.timeout = left_s  # for a socket still to be opened
        if self._http.sock is not None:
            self._http.sock.settimeout(left_s)
