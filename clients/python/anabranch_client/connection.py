"""One kept-alive HTTP connection to a server, with a time limit per exchange."""

import asyncio.trsock
import http.client
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from anabranch_client.addresses import Address
from anabranch_client.calls import Answer
from anabranch_client.policy import AttemptFailed, Blame, Failure
from anabranch_wire.errors import AnabranchError, Internal, Unavailable

__all__ = ["Connection", "broken", "lost", "reset_on_close", "spoke_http2"]

_SETTINGS: Final = b"\4"
"""Type of the frame that an HTTP/2 server begins with, behind its length (RFC 9113, 3.4, 4.1)."""


def reset_on_close(sock: socket.socket | asyncio.trsock.TransportSocket) -> None:
    """Let closing a socket reset its connection.

    An ordinary end right behind a request looks like that of a caller who only ended its sending,
    and still waits for the answer; a reset does not.
    """
    with suppress(OSError):  # it is closed already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def lost(address: Address, reason: object) -> AttemptFailed:
    """Return the failure of an attempt that got no byte of an answer; it may be sent again."""
    error = Unavailable(f"{address.authority}: {reason}")
    return AttemptFailed(Failure(error, safe=True, blame=Blame.DOWN))


def broken(address: Address, error: AnabranchError) -> AttemptFailed:
    """Return the failure of an attempt whose answer broke off, or is none."""
    shown = type(error)(f"{address.authority}: {error.message}")
    return AttemptFailed(Failure(shown, blame=Blame.DOWN))


def spoke_http2(address: Address) -> AttemptFailed:
    """Return the failure of an attempt at a port that speaks HTTP/2."""
    return broken(
        address,
        Unavailable(
            "speaks HTTP/2, as gRPC ports do: expected the HTTP port, 8000 unless the server was "
            "told another; the gRPC port is named by a URL that begins with grpc://"
        ),
    )


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
    """Owner of one socket, opened by `send`. For one thread at a time.

    After `AttemptFailed` or `TimeoutError` it is closed, and may be used again.
    """

    def __init__(self, address: Address) -> None:
        self._address: Final = address
        self._http: Final = http.client.HTTPConnection(address.host, address.port)
        self._http.response_class = _Response
        self._heard = True  # whether the server read all of the request, as far as is known

    def close(self) -> None:
        """Close the socket."""
        self._http.close()

    def abandon(self) -> None:
        """Close the socket without waiting for the answer, which the server then gives up."""
        if self._http.sock is not None:
            reset_on_close(self._http.sock)
        self._http.close()

    def fileno(self) -> int:
        """The open socket's, which is readable when an answer begins."""
        sock = self._http.sock
        assert sock is not None
        return sock.fileno()

    @property
    def is_open(self) -> bool:
        """Whether there is a socket that another exchange can use, as far as is known.

        A server says that it closed a connection by making it readable.
        """
        sock = self._http.sock
        if sock is None:
            return False
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        return not poller.poll(0)

    def send(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        deadline: float,
        connect_s: float,
    ) -> None:
        """Send a request.

        Args:
            method: HTTP verb.
            path: below the URL's prefix, percent-encoded.
            body: sent with its length.
            headers: beside those that HTTP itself needs.
            deadline: on the clock of `time.monotonic`.
            connect_s: limit of opening a connection, within the deadline.

        Raises:
            AttemptFailed: the server cannot be reached, or the connection broke.
            TimeoutError: the deadline passed.
        """
        self._heard = False
        with self._failures():
            if self._http.sock is None:
                self._connect(deadline, connect_s)
            self._limit(deadline)
            try:
                sent = self._address.prefix + path
                self._http.request(method, sent, body or None, dict(headers))
                self._heard = True
            except (BrokenPipeError, ConnectionResetError):
                pass  # the server stopped reading; it may have said why (a body over its limit)

    def receive(self, deadline: float) -> Answer:
        """Return the whole answer to what was sent, whatever its status.

        The deadline is looked at while nothing comes.

        Raises:
            AttemptFailed: the connection broke, or what came is no answer.
            TimeoutError: the deadline passed.
        """
        with self._failures():
            self._limit(deadline)
            response = self._http.getresponse()
            self._limit(deadline)
            found = {name.lower(): value for name, value in response.getheaders()}
            with _begun():
                answer = Answer(response.status, found, response.read())
        if not self._heard:
            self._http.close()
        return answer

    def _connect(self, deadline: float, connect_s: float) -> None:
        self._limit(min(deadline, time.monotonic() + connect_s))
        try:
            self._http.connect()
        except TimeoutError:
            if time.monotonic() >= deadline:
                raise
            raise ConnectionRefusedError(f"no connection within {connect_s:g} s") from None

    def _limit(self, deadline: float) -> None:
        """Let the next blocking step end at the deadline."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._http.timeout = left_s  # for a socket still to be opened
        if self._http.sock is not None:
            self._http.sock.settimeout(left_s)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            self.abandon()
            raise
        except http.client.IncompleteRead as error:
            self._http.close()
            raise broken(self._address, Unavailable(str(error))) from None
        except OSError as error:
            self._http.close()
            raise lost(self._address, error) from None
        except _Http2:
            self._http.close()
            raise spoke_http2(self._address) from None
        except http.client.HTTPException as error:
            self._http.close()
            raise broken(self._address, Internal(f"not an HTTP answer: {error!r}")) from None
        except BaseException:
            self._http.close()
            raise
