"""Heads of hot requests by their bytes: a client's requests differ in their bodies, not in these.

What the parser made of a head that began a request is true whenever the same bytes begin one, so
such a request needs neither parser nor header checks. Only plain heads are remembered: HTTP/1.1, a
length, a connection that is kept.
"""

from typing import Final

import msgspec

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
        b"x-request-id", b"traceparent", b"tracestate",
    }
)  # fmt: skip


class KnownHead(msgspec.Struct, frozen=True, gc=False):
    """A head that was read and found good.

    Attributes:
        target: what its URL means.
        fields: headers by name.
        head: what they say.
        length: bytes of the body.
    """

    target: Target
    fields: dict[bytes, bytes]
    head: RequestHead
    length: int


class KnownHeads:
    """The heads that were read lately. Belongs to one thread."""

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}

    def find(self, text: bytes) -> KnownHead | None:
        """Return what a head means; `text` includes the empty line."""
        return self._heads.get(text)

    def keep(self, text: bytes, known: KnownHead, url: bytes, header_count: int) -> None:
        """Remember what a head means, if it can come again.

        Args:
            text: what began the request, up to its first empty line.
            known: what the parser and the checks made of it.
            url: what the parser read as request target.
            header_count: how many headers the parser found.
        """
        fields = known.fields
        # Had the parser ended the head elsewhere than `text` does, the lines would not add up.
        is_whole = text.startswith(b"POST %b HTTP/1.1\r\n" % url) and (
            text.count(b"\n") - 2 == header_count == len(fields)
        )
        is_plain = (
            b"content-length" in fields
            and fields.get(b"connection", _KEEPS).lower() == _KEEPS
            and _NEVER.isdisjoint(fields)
        )
        if is_whole and is_plain:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[text] = known
