"""Answers as bytes: status line, headers and body of scores and of errors.

Names of headers are those of the project's contracts. Nothing here depends on a connection.
"""

import http
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from anabranch_server.http.content_coding import Coding, compress
from anabranch_server.oip import Reply
from anabranch_server.trace_context import TraceContext
from anabranch_wire.errors import AnabranchError, MethodNotAllowed, Overloaded
from anabranch_wire.snapshots import Snapshot

__all__ = ["CLOSES", "CONTINUE", "KEEPS", "KEEPS_BY_NAME", "Answer", "error_answer", "score_answer"]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

# The last lines of a head, by what happens to the connection.
KEEPS: Final = b"\r\n"
KEEPS_BY_NAME: Final = b"Connection: keep-alive\r\n\r\n"
CLOSES: Final = b"Connection: close\r\n\r\n"

_MIN_COMPRESSED: Final = 1024  # smaller bodies fit into one packet anyway
_CLIENT_CLOSED: Final = 499  # not registered; nginx introduced it
_LINES: Final = {
    _CLIENT_CLOSED: b"HTTP/1.1 499 Client Closed Request\r\n",
    **{
        status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
        for status in http.HTTPStatus
    },
}


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One answer but for the end of its head, which is known when it is written.

    Attributes:
        head: status line and headers, without the empty line.
        body: parts in order.
    """

    head: bytes
    body: Sequence[bytes]


def score_answer(
    reply: Reply,
    snapshot: Snapshot,
    request_id: str,
    accepted: Coding | None,
    trace: TraceContext | None = None,
) -> Answer:
    """Return the answer to a scored request.

    Args:
        reply: JSON and binary tensors.
        snapshot: what it was computed from.
        request_id: echoed.
        accepted: how the body may be compressed.
        trace: echoed where the caller named one.
    """
    body = [reply.head, *reply.tensors]
    size = reply.size
    if accepted is not None:
        if size >= _MIN_COMPRESSED:
            body = [compress(body, accepted)]
            size = len(body[0])
        else:
            accepted = None
    json_bytes = len(reply.head) if reply.tensors else 0
    lines = _score_lines(snapshot.version, snapshot.delta, size, json_bytes, accepted)
    echo = b"" if trace is None else trace.lines()
    return Answer(b"%b%b\r\n%b" % (lines, request_id.encode(), echo), body)


@lru_cache(maxsize=128)
def _score_lines(
    version: int, delta: int, size: int, json_bytes: int, coding: Coding | None
) -> bytes:
    """The head of an answer up to the request id; those of one client are mostly the same."""
    lines = [
        "HTTP/1.1 200 OK",
        f"Content-Type: {'application/octet-stream' if json_bytes else 'application/json'}",
        f"Content-Length: {size}",
        f"Anabranch-Model-Version: {version}",
        f"Anabranch-Delta: {delta}",
    ]
    if json_bytes:
        lines.append(f"Inference-Header-Content-Length: {json_bytes}")
    if coding is not None:
        lines.append(f"Content-Encoding: {coding}")
    return "\r\n".join([*lines, "X-Request-Id: "]).encode()


def error_answer(
    error: AnabranchError,
    request_id: str,
    *,
    has_body: bool = True,
    trace: TraceContext | None = None,
) -> Answer:
    """Return the answer for a failed request.

    Args:
        error: gives status and text.
        request_id: echoed.
        has_body: False for a HEAD request.
        trace: echoed where the caller named one.
    """
    body = msgspec.json.encode({"error": error.message})
    more = b""
    if isinstance(error, MethodNotAllowed):
        more = b"Allow: POST\r\n"
    elif isinstance(error, Overloaded):
        wait_s = error.retry_after_s
        more = b"Retry-After: %d\r\nAnabranch-Retry-After-Ms: %d\r\n" % (
            max(1, math.ceil(wait_s)),
            max(1, math.ceil(wait_s * 1000)),
        )
    if trace is not None:
        more += trace.lines()
    head = b"%bContent-Type: application/json\r\nContent-Length: %d\r\nX-Request-Id: %b\r\n%b" % (
        _LINES[error.http],
        len(body),
        request_id.encode(),
        more,
    )
    return Answer(head, [body] if has_body else [])
