"""Where a client's endpoints are, as its URLs say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from anabranch_wire.errors import InvalidInput

__all__ = ["Address", "Scheme", "read_addresses"]

Scheme = Literal["http", "grpc"]

_FORM = "http://HOST[:PORT][/PREFIX] or grpc://HOST[:PORT]"
_PORTS = {"http": 80, "grpc": 8001}


@dataclass(frozen=True, slots=True)
class Address:
    """One endpoint.

    Attributes:
        scheme: its protocol.
        host: without brackets.
        port: of it.
        prefix: path before every other; empty, or with a leading slash.
    """

    scheme: Scheme
    host: str
    port: int
    prefix: str = ""

    @property
    def authority(self) -> str:
        """`HOST:PORT`, as headers and gRPC targets have it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_addresses(urls: str | Sequence[str]) -> tuple[Address, ...]:
    """Return the endpoints that one or several URLs name.

    Raises:
        InvalidInput: there is none, one has another form, or they are of several protocols.
    """
    given = (urls,) if isinstance(urls, str) else tuple(urls)
    addresses = tuple(_read(url) for url in given)
    if not addresses:
        raise InvalidInput(f"url: expected at least one, as in {_FORM}")
    if len({address.scheme for address in addresses}) > 1:
        raise InvalidInput(f"url {given[0]!r} and others: expected one protocol for all of them")
    return addresses


def _read(url: str) -> Address:
    if not isinstance(url, str):
        raise InvalidInput(f"url: expected text, got {type(url).__name__}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"url {url!r}: {error}") from None
    extras = (parts.username, parts.password, parts.query, parts.fragment)
    prefix = parts.path.rstrip("/")
    for scheme in ("http", "grpc"):
        if parts.scheme == scheme and parts.hostname and not any(extras):
            if scheme == "grpc" and prefix:
                break
            return Address(scheme, parts.hostname, port or _PORTS[scheme], prefix)
    raise InvalidInput(f"url {url!r}: expected {_FORM}")
