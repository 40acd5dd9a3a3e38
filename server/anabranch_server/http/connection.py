"""The receiving half of a connection: what is hot, what is refused, what goes on to uvicorn.

The parser's callbacks only note what came; what must end the connection is raised through them.
"""

import asyncio
import time
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from anabranch_server.http.answers import CLOSES, KEEPS, KEEPS_BY_NAME
from anabranch_server.http.bodies import Decoded, decode_body, is_long
from anabranch_server.http.calls import Call
from anabranch_server.http.chunk_sizes import ChunkSizes
from anabranch_server.http.framing import check_framing, joined, not_spoken
from anabranch_server.http.heads import RequestHead, check_repeated, read_head
from anabranch_server.http.known_heads import MAX_KNOWN_BYTES, KnownHead
from anabranch_server.http.reading import Phase, ReadingConnection
from anabranch_server.http.routes import Target
from anabranch_server.http.turns import DecodingTurn, FailedTurn, HotTurn, Turn
from anabranch_server.ranking.admission import answer_nothing
from anabranch_server.trace_context import read_trace
from anabranch_wire.errors import (
    AnabranchError,
    InvalidInput,
    MethodNotAllowed,
    Overloaded,
    TooLarge,
)

__all__ = ["HotConnection"]

_IDLE, _HEAD, _BODY = Phase.IDLE, Phase.HEAD, Phase.BODY
_PLAIN: Final = RequestHead()


class HotConnection(ReadingConnection):
    """One HTTP/1.1 connection whose hot routes bypass ASGI. Everything runs on its event loop."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._known_heads = self.shared.known_heads
        self._new_head = b""
        # The request being received, from the end of its head on; no target: a cold one.
        self._fields: dict[bytes, bytes] = {}
        self._target: Target | None = None
        self._head = _PLAIN
        self._refusal: AnabranchError | None = None
        self._is_head_request = False
        self._body: bytes | bytearray = b""
        self._body_bytes = 0

    # --- requests that begin like an earlier one --------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what the peer sent.

        The usual case is one whole request that begins like an earlier one, on a connection with
        nothing else to do: it goes the shortest way to its group. Everything else is read step by
        step.
        """
        if not self.turns and self.is_at_rest():
            end = data.find(b"\r\n\r\n", 0, MAX_KNOWN_BYTES) + 4
            known = self._known_heads.find(data[:end])
            if known is not None and known.is_short and known.length == len(data) - end:
                self.heard = self.watch.now
                self._take_known(known, data[end:])
                return
        super().data_received(data)

    def _take_known(self, known: KnownHead, body: bytes) -> None:
        """Give a whole request behind a known head to its session group, or answer why not."""
        target = known.target
        shared = self.shared
        call = Call(
            self,
            target.route.protocol,
            target.model,
            shared.request_ids.make(),
            time.monotonic(),
            known.length,
            KEEPS,
            known.head.accepts,
        )
        turn: Turn
        try:
            self._check_caller(target)
            turn = self._submit(
                call,
                decode_body(
                    shared.context, target, known.head, body, call.received, call.request_id
                ),
            )
        except Exception as error:  # the edge of the loop
            turn = FailedTurn(error, call)
        self.caller.requests += 1
        self.turns.append(turn)
        if turn.answer is not None:
            self.flush()

    def recognise(self, data: bytes, at: int) -> int:
        """Begin the request at `at` if its head is known; return where its body begins, else 0."""
        self._new_head = b""
        end = data.find(b"\r\n\r\n", at, at + MAX_KNOWN_BYTES) + 4
        if end <= at:
            return 0
        text = data[at:end]
        known = self._known_heads.find(text)
        if known is None:
            self._new_head = text
            return 0
        self.phase = _BODY
        self.skips_parser = True
        self.body_left = known.length
        self._fields = known.fields
        self._target = known.target
        self._head = known.head
        self._refusal = None
        self._is_head_request = False
        self._body = b""
        self._body_bytes = 0
        return end

    def take_body(self, body: bytes | memoryview) -> None:
        """Take a part of the body behind a known head; ends the request when nothing is left."""
        self._gather(body)
        if not self.body_left:
            self.phase = _IDLE
            self.skips_parser = False
            self._take(KEEPS)

    # --- callbacks of the parser ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self.phase = _HEAD
        self.began = self.watch.now
        self.quiet_bytes = 0
        self.url = b""
        self.headers = []

    def on_url(self, url: bytes) -> None:
        """A part of the request target."""
        self.url += url
        if self.url == b"*" and self.parser.get_method() == b"PRI":
            raise not_spoken()
        if len(self.url) > self.limits.max_uri_bytes:
            raise TooLarge(f"request target: at most {self.limits.max_uri_bytes} bytes are allowed")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers mean nothing here."""
        if self.phase is _HEAD:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is there: decide who answers, and refuse what need not be read."""
        text, self._new_head = self._new_head, b""
        if self.parser.should_upgrade():
            self.offers_upgrade = True
            return
        fields = self._fields = joined(self.headers)
        check_framing(self.parser.get_http_version(), fields)
        self.chunks = ChunkSizes() if b"transfer-encoding" in fields else None
        target = self._target = self.shared.routes.find(self.url)
        method = self.parser.get_method()
        self.phase = _BODY
        self._refusal = None
        self._is_head_request = method == b"HEAD"
        self._body = b""
        self._body_bytes = 0
        if target is None:
            # With a request before it, uvicorn would queue this one itself; the order is kept here.
            self.cycle = None  # type: ignore[assignment]  # as uvicorn begins, too
            self._check_size()
            self._hand_over()
            return
        self._check_size()
        try:
            if method != b"POST":
                raise MethodNotAllowed("expected POST")
            if len(fields) != len(self.headers):
                check_repeated(self.headers)
            self._head = read_head(fields)
        except AnabranchError as refusal:
            self._refusal = refusal
        if b"expect" in fields and fields[b"expect"].lower() == b"100-continue":
            if self._refusal is not None:
                raise self._refusal
            self.wants_continue = self.parser.get_http_version() != "1.0"
        if text and self._refusal is None and self.parser.should_keep_alive():
            length = self.body_left
            known = KnownHead(
                target, fields, self._head, length, is_short=not is_long(self._head, length)
            )
            self._known_heads.keep(text, known, self.url, self.headers)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self.quiet_bytes = 0
        self.body_left = max(0, self.body_left - len(body))
        if self._body_bytes + len(body) > self.limits.max_body_bytes:
            raise self._body_too_large()
        if self.chunks is not None:
            self.chunks.add(len(body))
        if self._target is None:
            self._body_bytes += len(body)
            super().on_body(body)
            return
        self.wants_continue = False
        if self._refusal is None:
            self._gather(body)
        else:
            self._body_bytes += len(body)

    def expect_chunk(self, size: int) -> None:
        """A chunk goes on for `size` bytes that have not come."""
        self.body_left = size
        if self._body_bytes + size > self.limits.max_body_bytes:
            raise self._body_too_large()

    def on_message_complete(self) -> None:
        """The request is there."""
        if self.offers_upgrade:
            return
        self.phase = _IDLE
        self.quiet_bytes = 0
        self.wants_continue = False
        keeps = self.parser.should_keep_alive()
        if self._target is None:
            super().on_message_complete()
        elif not keeps:
            self._take(CLOSES)
        elif b"connection" in self._fields and self.parser.get_http_version() == "1.0":
            self._take(KEEPS_BY_NAME)  # whoever speaks 1.0 must be told
        else:
            self._take(KEEPS)
        if not keeps:
            self.is_deaf = True

    # --- requests ---------------------------------------------------------------------------------

    def describe(self) -> Call:
        """Return what is known of the request that is being received."""
        if self.phase is not _BODY:
            self._target = None
            self._fields = dict(self.headers) if self.phase is _HEAD else {}
            self._is_head_request = False
            self._body_bytes = 0
        return self._call(CLOSES)

    def cycle_received(self) -> RequestResponseCycle | None:
        """Return uvicorn's state of the request that is being received, if it is a cold one."""
        return self.cycle if self.phase is _BODY and self._target is None else None

    def _call(self, ending: bytes) -> Call:
        target = self._target
        field = self._fields.get
        return Call(
            self,
            self.protocol if target is None else target.route.protocol,
            "" if target is None else target.model,
            self.shared.request_ids.choose(field(b"x-request-id")),
            time.monotonic(),
            self._body_bytes,
            ending,
            self._head.accepts,
            self._is_head_request,
            read_trace(field(b"traceparent"), field(b"tracestate")),
        )

    def _gather(self, body: bytes | memoryview) -> None:
        if isinstance(self._body, bytearray):
            self._body += body
        elif self._body or isinstance(body, memoryview):
            self._body = bytearray(self._body)
            self._body += body
        else:
            self._body = body
        self._body_bytes += len(body)

    def _take(self, ending: bytes) -> None:
        """Give a complete hot request to its session group, or answer why not."""
        call = self._call(ending)
        turn: Turn
        try:
            turn = self._begin(call)
        except Exception as error:  # the edge of the loop
            turn = FailedTurn(error, call)
        self._body = b""
        self.caller.requests += 1
        self.turns.append(turn)

    def _begin(self, call: Call) -> Turn:
        if self._refusal is not None:
            raise self._refusal
        target = self._target
        assert target is not None
        self._check_caller(target)
        decode = partial(
            decode_body,
            self.shared.context,
            target,
            self._head,
            self._body,
            call.received,
            call.request_id,
        )
        if is_long(self._head, len(self._body)):
            return DecodingTurn(call, self.decoders, decode, self._go_on)
        return self._submit(call, decode())

    def _check_caller(self, target: Target) -> None:
        """Refuse a request of a client that has too many already, over all its connections."""
        try:
            self.caller.check(self.limits.max_in_flight_per_client)
        except Overloaded:
            self.observer.shed(target.model, "client_limit")
            raise

    def _submit(self, call: Call, decoded: Decoded) -> HotTurn:
        served, asked = decoded
        turn = HotTurn(asked.request, served, self.sink, call, asked.encode)
        if asked.is_empty:
            answer_nothing(turn)
            turn.settle()
        else:
            served.group.submit(turn)
        return turn

    def _go_on(self, decoding: DecodingTurn, future: Future[Decoded]) -> None:
        if self.is_gone:
            return
        turn: Turn
        try:
            turn = self._submit(decoding.call, future.result())
        except Exception as error:  # the edge of the loop
            turn = FailedTurn(error, decoding.call)
        self.turns[self.turns.index(decoding)] = turn
        self.flush()

    def _body_too_large(self) -> TooLarge:
        return TooLarge(f"body: at most {self.limits.max_body_bytes} bytes are allowed")

    def _check_size(self) -> None:
        """Refuse a head that is too large, or announces a body that is."""
        limits = self.limits
        headers = self.headers
        if len(headers) > limits.max_headers:
            raise TooLarge(f"{len(headers)} headers: at most {limits.max_headers} are allowed")
        size = sum([len(name) + len(value) for name, value in headers])
        if size > limits.max_header_bytes:
            raise TooLarge(
                f"{size} bytes of headers: at most {limits.max_header_bytes} are allowed"
            )
        self.body_left = int(self._fields.get(b"content-length", 0))
        if self.body_left > limits.max_body_bytes:
            raise TooLarge(
                f"body of {self.body_left} bytes: at most {limits.max_body_bytes} are allowed"
            )

    def _hand_over(self) -> None:
        """Let uvicorn have the head that was just read; the rest follows through the callbacks."""
        if len(self.turns) >= self.limits.max_in_flight_per_client:
            raise Overloaded(f"{len(self.turns)} requests of this connection wait")
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        self.headers = self.scope["headers"] = headers
        self.expect_100_continue = self._fields.get(b"expect", b"").lower() == b"100-continue"
        try:
            super().on_headers_complete()
        except (httptools.HttpParserError, UnicodeError, AttributeError):
            raise InvalidInput("malformed request target") from None
