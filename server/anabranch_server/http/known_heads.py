"""Heads of hot requests by their bytes: a client's requests differ in their bodies, not in these.

What the parser made of a head that began a request is true whenever the same bytes begin one, so
such a request needs neither parser nor header checks. Only plain heads are remembered: HTTP/1.1, a
length, a connection that is kept.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from anabranch_server.http.framing import Header
from anabranch_server.http.heads import RequestHead
from anabranch_server.http.routes import Target

__all__ = ["MAX_KNOWN_BYTES", "KnownHead", "KnownHeads"]

MAX_KNOWN_BYTES: Final = 2048
_MAX_HEADS: Final = 512
_KEEPS: Final = b"keep-alive"
_NEVER: Final = frozenset(
    {
        # These change what happens next.
        b"expect", b"transfer-encoding", b"upgrade",
        # These differ from request to request.
        b"x-request-id", b"traceparent", b"tracestate", b"anabranch-routing-key",
    }
)  # fmt: skip


class KnownHead(msgspec.Struct, frozen=True, gc=False):
    """A head that was read and found good.

    Attributes:
        target: what its URL means.
        fields: headers by name.
        head: what they say.
        length: bytes of the body.
        is_short: whether such a body is decoded at once, on the loop.
    """

    target: Target
    fields: dict[bytes, bytes]
    head: RequestHead
    length: int
    is_short: bool


class KnownHeads:
    """The heads that were read lately. Belongs to one thread."""

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}

    def find(self, text: bytes) -> KnownHead | None:
        """Return what a head means; `text` includes the empty line."""
        return self._heads.get(text)

    def keep(self, text: bytes, known: KnownHead, url: bytes, headers: Sequence[Header]) -> None:
        """Remember what a head means, if it can come again.

        Args:
            text: what is believed to be the head, with its empty line.
            known: what the parser and the checks made of it.
            url: the request target that the parser found.
            headers: the headers that the parser found, names in lower case.
        """
        fields = known.fields
        is_plain = (
            b"content-length" in fields
            and fields.get(b"connection", _KEEPS).lower() == _KEEPS
            and _NEVER.isdisjoint(fields)
        )
        if is_plain and len(fields) == len(headers) and _says(text, url, headers):
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[text] = known


def _says(text: bytes, url: bytes, headers: Sequence[Header]) -> bool:
    """Whether `text` is this head to the last byte, whatever the parser was lenient about.

    Everybody's requests are read by what is remembered: nothing may be remembered by mistake.
    """
    first, *lines = text.split(b"\r\n")
    parts = [line.partition(b":") for line in lines[:-2]]
    return (
        first == b"POST %b HTTP/1.1" % url
        and lines[-2:] == [b"", b""]
        and [(name.lower(), value.strip(b" \t")) for name, _, value in parts] == list(headers)
    )
