"""The reading half of a connection: how fast bytes may come, and when they end it.

What came is read request by request: by the parser (httptools, uvicorn's), or without it where a
head is known. Reading stops while the peer takes no answers or has many requests unanswered.
"""

import asyncio
from enum import Enum
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.server import ServerState

from anabranch_server.http.answers import CONTINUE
from anabranch_server.http.chunk_sizes import ChunkSizes
from anabranch_server.http.framing import malformed
from anabranch_server.http.ordering import OrderedConnection
from anabranch_wire.errors import TooLarge, Unsupported

__all__ = ["Phase", "ReadingConnection"]

_SLICE: Final = 16_384
"""Bytes parsed at once, so that a burst of small requests can be stopped in the middle."""


class Phase(Enum):
    """What the peer is in the middle of sending."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"


_IDLE, _HEAD, _BODY = Phase.IDLE, Phase.HEAD, Phase.BODY


class ReadingConnection(OrderedConnection):
    """Reads one connection. Everything runs on its event loop.

    Attributes:
        phase: what is being received.
        began: coarse `time.monotonic()` of the first byte of a head that is being received.
        quiet_bytes: bytes parsed since a request began or a part of its body came.
        body_left: bytes that the body being received still lacks, as far as its length is known;
            of a body in chunks, those of the chunk.
        chunks: sizes of the chunks of that body; None for one that is not in chunks.
        skips_parser: a body is being received behind a known head.
        offers_upgrade: the parser saw an offer to switch protocols.
        wants_continue: the peer waits to be asked for the body.
    """

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
        self._input = b""
        self._at = 0
        self._is_reading = False
        self.phase = _IDLE
        self.began = 0.0
        self.quiet_bytes = 0
        self.body_left = 0
        self.chunks: ChunkSizes | None = None
        self.skips_parser = False
        self.offers_upgrade = False
        self.wants_continue = False

    # --- what the receiving half does with it -----------------------------------------------------

    def recognise(self, data: bytes, at: int) -> int:
        """Begin the request at `at` if its head is known; return where its body begins, else 0."""
        raise NotImplementedError

    def take_body(self, body: bytes | memoryview) -> None:
        """Take a part of the body behind a known head; ends the request when nothing is left."""
        raise NotImplementedError

    def expect_chunk(self, size: int) -> None:
        """A chunk goes on for `size` bytes that have not come.

        Raises:
            TooLarge: the body would be too long.
        """
        raise NotImplementedError

    # --- bytes in ---------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what the peer sent, as far as there is room for more requests."""
        if self.is_deaf:
            return
        self.heard = self.watch.now
        if self._input:
            data = self._input[self._at :] + data
        self._input = data
        self._at = 0
        self._read()

    def is_at_rest(self) -> bool:
        """Whether the next byte begins a request, and nothing holds the reading."""
        return not (
            self._input
            or self.phase is not _IDLE
            or self.quiet_bytes
            or self.is_deaf
            or self._is_reading
            or self.gate.is_held
            or self.gate.write_paused
        )

    def flush(self) -> None:
        """Write what is ready, then go on with what was held back for it."""
        super().flush()
        if self._input or self.gate.is_held or self.wants_continue:
            self._read()

    def resume_writing(self) -> None:
        """The peer takes answers again."""
        super().resume_writing()
        self._read()

    def is_receiving(self) -> bool:
        """Whether a request has begun to arrive and is not complete."""
        return self.phase is not _IDLE

    def look_at_request(self, now: float) -> None:
        """Cut a peer that does not go on with its request; close one that has none."""
        limits = self.limits
        if self.phase is _IDLE:
            if not self.turns and now - self.heard >= self.config.timeout_keep_alive:
                self.cut("idle")
        elif self.gate.is_held or self.gate.read_paused or (self.turns and self.wants_continue):
            self.began = self.heard = now  # it is not the peer who keeps us waiting
        elif self.phase is _HEAD:
            if now - self.began >= limits.header_timeout_s:
                self.cut("slow_writer")
        elif now - self.heard >= limits.body_timeout_s:
            self.cut("slow_writer")

    def _is_crowded(self) -> bool:
        return len(self.turns) >= self._many_turns or self.gate.write_paused

    def _read(self) -> None:
        """Read request by request, until all is used up or answers must be written first."""
        if self._is_reading:
            return
        self._is_reading = True
        turns = self.turns
        try:
            while self._at < len(self._input) and not self.is_deaf and not self._is_crowded():
                if self.skips_parser or self._begins_known():
                    self._pass_body()
                else:
                    self._parse()
                if turns and turns[0].answer is not None:
                    self.flush()
        finally:
            self._is_reading = False
        if self.is_deaf or self._at >= len(self._input):
            self._input = b""
            self._at = 0
        if self.is_deaf:
            return
        if self._is_crowded():
            self.gate.hold()
            return
        self.gate.release()
        if self.wants_continue and not turns:
            self.wants_continue = False
            self._write(CONTINUE)

    def _begins_known(self) -> bool:
        if self.phase is not _IDLE or self.quiet_bytes:
            return False
        begin = self.recognise(self._input, self._at)
        self._at = begin or self._at
        return begin > 0

    def _pass_body(self) -> None:
        begin = self._at
        self._at = end = min(begin + self.body_left, len(self._input))
        self.body_left -= end - begin
        if self.body_left:  # more will be added to it: it need not be an object of its own
            self.take_body(memoryview(self._input)[begin:end])
        else:
            self.take_body(self._input[begin:end])

    def _parse(self) -> None:
        """Let the parser have a piece: a body as it is, heads by slices."""
        data = self._input
        at = self._at
        piece: bytes | memoryview = data
        if at or len(data) > _SLICE:
            size = max(_SLICE, self.body_left) if self.phase is _BODY else _SLICE
            piece = memoryview(data)[at : at + size]
        self._at = at + len(piece)
        self.quiet_bytes += len(piece)
        try:
            self.parser.feed_data(piece)
            if self.phase is _BODY and self.chunks is not None and not self.is_deaf:
                missing = self.chunks.missing(piece)
                if missing:
                    self.expect_chunk(missing)
        except httptools.HttpParserUpgrade as pause:
            self._restart_without_upgrade(data[at + pause.args[0] :])
        except (httptools.HttpParserError, TooLarge) as error:
            self._refuse_unparsed(error)
        if self.quiet_bytes > self._most_quiet_bytes:
            self._refuse_unparsed(TooLarge("the request has too many bytes outside its body"))

    def on_chunk_header(self) -> None:
        """The line of a chunk was read."""
        if self.chunks is not None:
            self.chunks.begin()

    def on_chunk_complete(self) -> None:
        """A chunk is over."""
        if self.chunks is not None:
            self.chunks.end()

    # --- what is not read -------------------------------------------------------------------------

    def _refuse_unparsed(self, error: Exception) -> None:
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
        if isinstance(cause, httptools.HttpParserError):
            cause = malformed(str(cause))
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
        self._input = head + rest
        self._at = 0
        self.offers_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
