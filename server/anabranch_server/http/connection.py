"""The receiving half of a connection: what is hot, what is refused, how fast it may come.

A subclass of uvicorn's protocol: requests that are not hot are handed on to it whole. The parser is
uvicorn's (httptools); its callbacks only note what came, and what must end the connection is raised
through it.
"""

import asyncio
import time
from enum import Enum
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from anabranch_server.http.answers import CLOSES, CONTINUE, KEEPS, KEEPS_BY_NAME
from anabranch_server.http.calls import Call
from anabranch_server.http.content_coding import decompress
from anabranch_server.http.heads import RequestHead, read_head
from anabranch_server.http.ordering import OrderedConnection
from anabranch_server.http.routes import Target
from anabranch_server.http.turns import FailedTurn, HotTurn, Turn
from anabranch_server.oip import CallOptions
from anabranch_wire.errors import (
    AnabranchError,
    InvalidInput,
    MethodNotAllowed,
    Overloaded,
    TooLarge,
    Unsupported,
)

__all__ = ["HotConnection"]

_SLICE: Final = 16_384
"""Bytes parsed at once, so that a burst of small requests can be stopped in the middle."""

_PLAIN: Final = RequestHead()


_POST: Final = b"POST"


class _Phase(Enum):
    IDLE = "idle"
    HEAD = "head"
    BODY = "body"


_IDLE, _HEAD, _BODY = _Phase.IDLE, _Phase.HEAD, _Phase.BODY


class _Deaf(Exception):
    """Ends parsing: the connection's last request was read."""


class HotConnection(OrderedConnection):
    """One HTTP/1.1 connection whose hot routes bypass ASGI. Everything runs on its event loop."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        limits = self.limits
        # More turns than this hold the reading; a slice may bring as many again before they do.
        self._many_turns = max(1, limits.max_in_flight_per_client // 2)
        # A head, a chunk's extensions or trailers end, or the body goes on, within so many bytes.
        self._most_quiet_bytes = limits.max_header_bytes + limits.max_uri_bytes + _SLICE
        self._input: bytes | memoryview = b""
        self._is_pumping = False
        self._phase = _IDLE
        self._began = 0.0
        self._quiet_bytes = 0
        self._upgrades = False
        self._wants_continue = False
        # The request being received.
        self._fields: dict[bytes, bytes] = {}
        self._target: Target | None = None
        self._head = _PLAIN
        self._refusal: AnabranchError | None = None
        self._length = 0
        self._body: bytes | bytearray = b""
        self._body_bytes = 0

    # --- bytes in -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what the peer sent, as far as there is room for more requests."""
        if self.is_deaf:
            return
        self.heard = self.watch.now
        self._input = b"".join((self._input, data)) if self._input else data
        self._pump()

    def flush(self) -> None:
        """Write what is ready, then go on with what was held back for it."""
        super().flush()
        if self._input or self.gate.is_held or self._wants_continue:
            self._pump()

    def resume_writing(self) -> None:
        """The peer takes answers again."""
        super().resume_writing()
        self._pump()

    def is_receiving(self) -> bool:
        """Whether a request has begun to arrive and is not complete."""
        return self._phase is not _IDLE

    def cycle_received(self) -> RequestResponseCycle | None:
        """Return uvicorn's state of the request that is being received, if it is a cold one."""
        return self.cycle if self._phase is _BODY and self._target is None else None

    def look_at_request(self, now: float) -> None:
        """Cut a peer that does not go on with its request; close one that has none."""
        limits = self.limits
        if self._phase is _IDLE:
            if not self.turns and now - self.heard >= self.config.timeout_keep_alive:
                self.cut("idle")
        elif self.gate.is_held or self.gate.read_paused or (self.turns and self._wants_continue):
            self._began = self.heard = now  # it is not the peer who waits
        elif self._phase is _HEAD:
            if now - self._began >= limits.header_timeout_s:
                self.cut("slow_writer")
        elif now - self.heard >= limits.body_timeout_s:
            self.cut("slow_writer")

    def _is_crowded(self) -> bool:
        return len(self.turns) >= self._many_turns or self.gate.write_paused

    def _pump(self) -> None:
        """Parse what came, piece by piece, until it is used up or answers must be written first."""
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._input and not self.is_deaf and not self._is_crowded():
                self._parse_piece()
                if self.turns and self.turns[0].answer is not None:
                    self.flush()
        finally:
            self._is_pumping = False
        if self.is_deaf:
            self._input = b""
        elif self._is_crowded():
            self.gate.hold()
        else:
            self.gate.release()
            if self._wants_continue and not self.turns:
                self._wants_continue = False
                self._write(CONTINUE)

    def _parse_piece(self) -> None:
        data = self._input
        piece = data
        if len(data) > _SLICE:
            # A body comes in as it is; requests come in by slices.
            size = max(_SLICE, self._length - self._body_bytes if self._phase is _BODY else 0)
            data = memoryview(data)
            piece = data[:size]
        self._input = data[len(piece) :]
        self._quiet_bytes += len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as pause:
            self._restart_without_upgrade(bytes(data[pause.args[0] :]))
        except httptools.HttpParserError as error:
            self._refuse_unparsed(error)
        if self._quiet_bytes > self._most_quiet_bytes:
            self._refuse_unparsed(TooLarge("the request has too many bytes outside its body"))

    def _refuse_unparsed(self, error: Exception) -> None:
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
        if isinstance(cause, _Deaf):
            return
        if isinstance(cause, httptools.HttpParserError):
            cause = InvalidInput(f"malformed HTTP request: {cause}")
        if isinstance(cause, TooLarge) and not self.is_deaf:
            self.observer.connection_cut(self.protocol, "too_large")
        self.refuse(cause if isinstance(cause, Exception) else error)

    def _restart_without_upgrade(self, rest: bytes) -> None:
        """Go on as if the peer had not offered another protocol (RFC 9110 section 7.8).

        The parser takes an offer as accepted: another one is given the same head without it.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.refuse(Unsupported("CONNECT is not supported"))
            return
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        version = self.parser.get_http_version().encode()
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))
        self._upgrades = False
        self._input = head + rest
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    # --- parser callbacks -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self.is_deaf:
            self._must_linger = True
            raise _Deaf
        self._phase = _HEAD
        self._began = self.watch.now
        self._quiet_bytes = 0
        self.url = b""
        self.headers = []

    def on_url(self, url: bytes) -> None:
        """A part of the request target."""
        self.url = self.url + url if self.url else url
        if len(self.url) > self.limits.max_uri_bytes:
            raise TooLarge(f"request target: at most {self.limits.max_uri_bytes} bytes are allowed")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers mean nothing here."""
        if self._phase is _HEAD:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is there: decide who answers, and refuse what need not be read."""
        if self.parser.should_upgrade():
            self._upgrades = True
            return
        fields = self._fields = dict(self.headers)
        self._phase = _BODY
        self._body = b""
        self._body_bytes = 0
        self._target = self.shared.routes.find(self.url)
        if self._target is None:
            # With a request before it, uvicorn would queue this one itself; the order is kept here.
            self.cycle = None  # type: ignore[assignment]
            self._check_size(fields)
            self._hand_over(fields)
            return
        self._check_size(fields)
        self._refusal = None
        try:
            self._head = read_head(fields)
            if self.parser.get_method() != _POST:
                raise MethodNotAllowed("expected POST")
        except AnabranchError as refusal:
            self._refusal = refusal
        if fields.get(b"expect", b"").lower() == b"100-continue":
            if self._refusal is not None:
                raise self._refusal
            self._wants_continue = self.parser.get_http_version() != "1.0"

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._quiet_bytes = 0
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.max_body_bytes:
            raise TooLarge(f"body: at most {self.limits.max_body_bytes} bytes are allowed")
        if self._target is None:
            super().on_body(body)
            return
        self._wants_continue = False
        if self._refusal is not None:
            return
        if not self._body:
            self._body = body
        elif isinstance(self._body, bytearray):
            self._body += body
        else:
            self._body = bytearray(self._body)
            self._body += body

    def on_message_complete(self) -> None:
        """The request is there."""
        if self._upgrades:
            return
        self._phase = _IDLE
        self._wants_continue = False
        keeps = self.parser.should_keep_alive()
        if self._target is None:
            super().on_message_complete()
        else:
            self._take(self._target, self._call(keeps))
        if not keeps:
            self.is_deaf = True

    # --- requests -------------------------------------------------------------------------------

    def describe(self) -> Call:
        """Return what is known of the request that is being received."""
        return self._call(keeps=False)

    def _call(self, keeps: bool) -> Call:
        target = self._target
        fields = self._fields
        ending = CLOSES
        if keeps:
            # Whoever speaks 1.0 must ask to keep the connection, and be told that it is kept.
            is_old = b"connection" in fields and self.parser.get_http_version() == "1.0"
            ending = KEEPS_BY_NAME if is_old else KEEPS
        return Call(
            self,
            self.protocol if target is None else target.route.protocol,
            "" if target is None else target.model,
            self.shared.request_ids.choose(fields.get(b"x-request-id")),
            time.monotonic(),
            self._body_bytes,
            ending,
            self._head.accepts,
            isinstance(self._refusal, MethodNotAllowed) and self.parser.get_method() == b"HEAD",
        )

    def _take(self, target: Target, call: Call) -> None:
        """Give a complete hot request to its session group, or answer why not."""
        turn: Turn
        try:
            turn = self._submit(target, call)
        except Exception as error:  # the edge of the loop
            turn = FailedTurn(error, call)
        self._body = b""
        self.turns.append(turn)

    def _submit(self, target: Target, call: Call) -> HotTurn:
        if self._refusal is not None:
            raise self._refusal
        limits = self.limits
        if len(self.turns) >= limits.max_in_flight_per_client:
            raise Overloaded(
                f"{len(self.turns)} requests of this connection wait: "
                f"at most {limits.max_in_flight_per_client} are allowed"
            )
        head = self._head
        served = self.shared.context.catalog.resolve(target.model, target.selector)
        body = self._body
        if head.coding is not None:
            body = decompress(body, head.coding, limits.max_decompressed_bytes)
        options = CallOptions(call.received, head.timeout_s, head.priority)
        request, encode = target.route.decode(body, head.json_bytes, served, options)
        turn = HotTurn(request, served, self.sink, call, encode)
        served.group.submit(turn)
        return turn

    def _check_size(self, fields: dict[bytes, bytes]) -> None:
        limits = self.limits
        headers = self.headers
        if len(headers) > limits.max_headers:
            raise TooLarge(f"{len(headers)} headers: at most {limits.max_headers} are allowed")
        if self._quiet_bytes + _SLICE > limits.max_header_bytes:
            size = sum([len(name) + len(value) for name, value in headers])
            if size > limits.max_header_bytes:
                raise TooLarge(
                    f"{size} bytes of headers: at most {limits.max_header_bytes} are allowed"
                )
        self._length = int(fields.get(b"content-length", 0))
        if self._length > limits.max_body_bytes:
            raise TooLarge(
                f"body of {self._length} bytes: at most {limits.max_body_bytes} are allowed"
            )

    def _hand_over(self, fields: dict[bytes, bytes]) -> None:
        """Let uvicorn have the head that was just read; the rest follows through the callbacks."""
        if len(self.turns) >= self.limits.max_in_flight_per_client:
            raise Overloaded(f"{len(self.turns)} requests of this connection wait")
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        self.headers = self.scope["headers"] = headers
        self.expect_100_continue = fields.get(b"expect", b"").lower() == b"100-continue"
        try:
            super().on_headers_complete()
        except (httptools.HttpParserError, UnicodeError, AttributeError):
            raise InvalidInput("malformed request target") from None
