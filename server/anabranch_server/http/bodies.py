"""Complete bodies of hot requests, and how they become what a session group computes."""

from typing import Final

from anabranch_runtime.requests import ScoreRequest
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import DoorContext
from anabranch_server.http.content_coding import decompress
from anabranch_server.http.heads import RequestHead
from anabranch_server.http.routes import Encode, Target
from anabranch_server.oip import CallOptions

__all__ = ["Decoded", "decode_body", "is_long"]

_LONG_JSON_BYTES: Final = 131_072
_LONG_CODED_BYTES: Final = 4096
_LONG_BYTES: Final = 524_288

Decoded = tuple[ScoreRequest, ServedVersion, Encode]
"""What to compute, the version that computes it, and what makes the answer."""


def is_long(head: RequestHead, size: int) -> bool:
    """Whether decoding may take so long that the loop had better not wait for it.

    A compressed body may become a thousand times as large; numbers in JSON take about 1.5 ms a
    megabyte. Binary numbers are not touched at all, but binary strings are read one by one, and the
    model that knows which of them a body holds is not asked here.

    Args:
        head: what the headers say.
        size: bytes of the body.
    """
    if head.coding is not None:
        return size > _LONG_CODED_BYTES
    if size > _LONG_BYTES:
        return True
    return (size if head.json_bytes is None else head.json_bytes) > _LONG_JSON_BYTES


def decode_body(
    context: DoorContext,
    target: Target,
    head: RequestHead,
    body: bytes | bytearray,
    received: float,
) -> Decoded:
    """Decode a body for the version that serves now. Any thread.

    Args:
        context: catalog and limits.
        target: what the URL means.
        head: what the headers say.
        body: as it was sent; must not change as long as the request lives.
        received: `time.monotonic()` when its last byte came.

    Raises:
        AnabranchError: the model is not served, or the body is refused.
    """
    served = context.catalog.resolve(target.model, target.selector)
    if head.coding is not None:
        body = decompress(body, head.coding, context.limits.max_decompressed_bytes)
    options = CallOptions(received, head.timeout_s, head.priority, head.routing_key)
    request, encode = target.route.decode(body, head.json_bytes, served, options)
    return request, served, encode
