"""What a head must say before its request is read at all: which HTTP, for whom, where it ends.

Whoever breaks these rules may disagree with a proxy before us on where the next request begins, so
the connection is closed (RFC 9112 sections 3.2, 6.1 and 11.2).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch_wire.errors import AnabranchError, InvalidInput, Unsupported

__all__ = ["SPOKEN", "Header", "check_framing", "joined", "malformed", "not_spoken"]

SPOKEN: Final = frozenset({"1.0", "1.1"})

Header = tuple[bytes, bytes]
"""Name in lower case, and value."""


def joined(headers: Sequence[Header]) -> dict[bytes, bytes]:
    """Return the headers by name; a repeated one is the list of its values (RFC 9110 section 5.3).

    Raises:
        InvalidInput: several hosts.
    """
    fields = dict(headers)
    if len(fields) != len(headers):
        values: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            values.setdefault(name, []).append(value)
        if len(values.get(b"host", ())) > 1:
            raise InvalidInput("malformed HTTP request: header 'host' is given twice")
        fields = {name: b", ".join(several) for name, several in values.items()}
    return fields


def check_framing(version: str, fields: Mapping[bytes, bytes]) -> None:
    """Refuse a head that does not say what it must.

    Args:
        version: of HTTP, as the parser found it.
        fields: headers by their names in lower case.

    Raises:
        InvalidInput: another HTTP, no host, or a coding that the version does not have.
        Unsupported: a transfer coding other than chunked.
    """
    if version not in SPOKEN:
        raise InvalidInput(f"malformed HTTP request: version {version}, expected 1.1 or 1.0")
    if version == "1.1" and b"host" not in fields:
        raise InvalidInput("malformed HTTP request: expected a Host header")
    coding = fields.get(b"transfer-encoding")
    if coding is not None:
        if version == "1.0":
            raise InvalidInput("malformed HTTP request: HTTP/1.0 has no Transfer-Encoding")
        if coding.lower() != b"chunked":
            raise _unsupported_coding()


def malformed(reason: str) -> AnabranchError:
    """Return the refusal of what the parser did not take, for its `reason`."""
    if "Invalid `Transfer-Encoding`" in reason:  # several, or some behind chunked
        return _unsupported_coding()
    return InvalidInput(f"malformed HTTP request: {reason}")


def not_spoken() -> InvalidInput:
    """Return the refusal of a peer that speaks HTTP/2 unasked, as gRPC does."""
    return InvalidInput(
        "HTTP/2 is not spoken on this port: expected HTTP/1.1; gRPC has a port of its own"
    )


def _unsupported_coding() -> Unsupported:
    return Unsupported("Transfer-Encoding: nothing but chunked is supported")
