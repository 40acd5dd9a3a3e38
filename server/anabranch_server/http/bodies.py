"""Complete bodies of hot requests, and how they become what a session group computes."""

from typing import Final, NamedTuple

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import DoorContext
from anabranch_server.http.content_coding import decompress
from anabranch_server.http.heads import RequestHead
from anabranch_server.http.routes import Asked, Target
from anabranch_server.oip import CallOptions
from anabranch_wire.errors import NotFound
from anabranch_wire.names import is_label, is_version

__all__ = ["Decoded", "decode_body", "is_long"]

_LONG_JSON_BYTES: Final = 131_072
_LONG_CODED_BYTES: Final = 4096
_LONG_BYTES: Final = 524_288


class Decoded(NamedTuple):
    """A body, read.

    Attributes:
        served: the version that computes it.
        asked: what to compute, and what makes the answer.
    """

    served: ServedVersion
    asked: Asked


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
    request_id: str = "",
) -> Decoded:
    """Decode a body for the version that serves now. Any thread.

    Args:
        context: catalog and limits.
        target: what the URL means.
        head: what the headers say.
        body: as it was sent; must not change as long as the request lives.
        received: `time.monotonic()` when its last byte came.
        request_id: as it will be echoed.

    Raises:
        AnabranchError: the model is not served, or the body is refused.
    """
    served = _chosen(context.catalog, target)
    if head.coding is not None:
        body = decompress(body, head.coding, context.limits.max_decompressed_bytes)
    options = CallOptions(received, head.timeout_s, head.priority, head.routing_key, request_id)
    return Decoded(served, target.route.decode(body, head.json_bytes, served, options))


def _chosen(catalog: Catalog, target: Target) -> ServedVersion:
    """Return the version that a URL names; a number is no label, and a word no version.

    Raises:
        NotFound, Unavailable: as `Catalog.resolve` says.
    """
    selector = target.selector
    if target.named == "version" and not is_version(selector):
        raise NotFound(
            f"version {selector[:80]!r}: expected digits; labels have the path /labels/LABEL"
        )
    if target.named == "label" and not is_label(selector):
        raise NotFound(
            f"label {selector[:80]!r}: expected a lower-case word; versions have the path "
            "/versions/NUMBER"
        )
    return catalog.resolve(target.model, selector)
