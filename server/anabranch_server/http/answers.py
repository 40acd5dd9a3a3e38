"""Answers as bytes: status line, headers and body of scores and of errors.

Names of headers are those of the project's contracts. Nothing here depends on a connection.
"""

import http
import math
from collections.abc import Sequence
from typing import Final

import msgspec

from anabranch_server.http.content_coding import Coding, compress
from anabranch_server.oip import Reply
from anabranch_wire.errors import AnabranchError, MethodNotAllowed, Overloaded
from anabranch_wire.snapshots import Snapshot

__all__ = ["CLOSES", "CONTINUE", "KEEPS", "KEEPS_BY_NAME", "Answer", "error_answer", "score_answer"]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

# The last lines of a head, by what happens to the connection.
KEEPS: Final = b"\r\n"
KEEPS_BY_NAME: Final = b"Connection: keep-alive\r\n\r\n"
CLOSES: Final = b"Connection: close\r\n\r\n"

_MIN_COMPRESSED: Final = 1024  # smaller bodies fit into one packet anyway
_JSON: Final = b"application/json"
_BINARY: Final = b"application/octet-stream"
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
    reply: Reply, snapshot: Snapshot, request_id: str, accepted: Coding | None
) -> Answer:
    """Return the answer to a scored request.

    Args:
        reply: JSON and binary tensors.
        snapshot: what it was computed from.
        request_id: echoed.
        accepted: how the body may be compressed.
    """
    head, tensors, size = reply.head, reply.tensors, reply.size
    body = [head, *tensors]
    more = b""
    if accepted is not None and size >= _MIN_COMPRESSED:
        packed = compress(body, accepted)
        body, size = [packed], len(packed)
        more = b"Content-Encoding: %b\r\n" % accepted.encode()
    if tensors:
        more += b"Inference-Header-Content-Length: %d\r\n" % len(head)
    return Answer(
        b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n"
        b"Anabranch-Model-Version: %d\r\nAnabranch-Delta: %d\r\nX-Request-Id: %b\r\n%b"
        % (
            _BINARY if tensors else _JSON,
            size,
            snapshot.version,
            snapshot.delta,
            request_id.encode(),
            more,
        ),
        body,
    )


def error_answer(error: AnabranchError, request_id: str, *, has_body: bool = True) -> Answer:
    """Return the answer for a failed request.

    Args:
        error: gives status and text.
        request_id: echoed.
        has_body: False for a HEAD request.
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
    head = b"%bContent-Type: %b\r\nContent-Length: %d\r\nX-Request-Id: %b\r\n%b" % (
        _LINES[error.http],
        _JSON,
        len(body),
        request_id.encode(),
        more,
    )
    return Answer(head, [body] if has_body else [])
