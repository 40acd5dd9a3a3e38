"""What the headers of a hot request say, checked."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from anabranch_server.http.content_coding import Coding, accepted_coding, content_coding
from anabranch_server.http.framing import Header
from anabranch_wire.errors import InvalidInput, UnsupportedMedia

__all__ = ["RequestHead", "check_repeated", "read_head"]

_CONTENT_TYPES: Final = frozenset(
    {
        b"application/json",
        b"application/octet-stream",
        b"application/x-www-form-urlencoded",  # what `curl -d` says of anything
    }
)
_SINGLE: Final = frozenset(
    {
        b"content-type",
        b"inference-header-content-length",
        b"anabranch-timeout-ms",
        b"anabranch-priority",
        b"anabranch-routing-key",
        b"x-request-id",
        b"expect",
    }
)
"""Headers with a meaning that have one value; whoever reads another of several is misled."""

_TIMEOUT: Final = re.compile(rb"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")


class RequestHead(msgspec.Struct, frozen=True, gc=False):
    """The headers that matter to a scoring request.

    Attributes:
        coding: how the body is compressed.
        accepts: how the answer may be compressed.
        json_bytes: length of the JSON at the front of the body; None when not given.
        timeout_s: what `Anabranch-Timeout-Ms` grants.
        priority: what `Anabranch-Priority` says.
        routing_key: what `Anabranch-Routing-Key` says.
    """

    coding: Coding | None = None
    accepts: Coding | None = None
    json_bytes: int | None = None
    timeout_s: float | None = None
    priority: int | None = None
    routing_key: str | None = None


def read_head(fields: Mapping[bytes, bytes]) -> RequestHead:
    """Read the headers of a hot request, by their names in lower case.

    Raises:
        UnsupportedMedia: a content type or coding that is not read here.
        InvalidInput: a malformed number.
    """
    field = fields.get
    content_type = field(b"content-type")
    if content_type is not None and content_type not in _CONTENT_TYPES:
        _check_content_type(content_type)
    json_bytes = field(b"inference-header-content-length")
    coding = field(b"content-encoding")
    accepts = field(b"accept-encoding")
    timeout = field(b"anabranch-timeout-ms")
    priority = field(b"anabranch-priority")
    key = field(b"anabranch-routing-key")
    return RequestHead(
        None if coding is None else content_coding(coding),
        None if accepts is None else accepted_coding(accepts),
        None if json_bytes is None else _number("Inference-Header-Content-Length", json_bytes),
        None if timeout is None else _timeout_s(timeout),
        None if priority is None else _number("Anabranch-Priority", priority),
        None if key is None else key.decode("utf-8", "replace"),
    )


def check_repeated(headers: Sequence[Header]) -> None:
    """Refuse what is given twice and must not be, whether the values differ or not.

    Raises:
        InvalidInput: names the header.
    """
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in _SINGLE and name in seen:
            raise InvalidInput(f"header {name.decode()!r} is given twice: expected one")
        seen.add(name)


def _check_content_type(value: bytes) -> None:
    essence = value.partition(b";")[0].strip().lower()
    if essence and essence not in _CONTENT_TYPES:
        raise UnsupportedMedia(
            f"Content-Type {value[:80].decode('latin-1')!r}: expected application/json or "
            "application/octet-stream"
        )


def _number(name: str, value: bytes) -> int:
    if _DIGITS.fullmatch(value) is None:
        raise InvalidInput(f"{name} {value[:40].decode('latin-1')!r}: expected decimal digits")
    return int(value)


def _timeout_s(value: bytes) -> float:
    if _TIMEOUT.fullmatch(value) is None:
        raise InvalidInput(
            f"Anabranch-Timeout-Ms {value[:40].decode('latin-1')!r}: expected milliseconds"
        )
    return float(value) / 1000.0
