"""What the gRPC door reads beside a message: id, deadline, priority, routing key, trace, caller."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

import msgspec

from anabranch_server.trace_context import TraceContext, read_trace
from anabranch_wire.errors import InvalidInput

__all__ = ["CallMetadata", "address_of", "read_metadata"]

_TIMEOUT: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_PRIORITY: Final = re.compile(r"[0-9]{1,18}")


class CallMetadata(msgspec.Struct, frozen=True, gc=False):
    """What a caller said beside the message, as sent; None where nothing was.

    Attributes:
        request_id: `x-request-id`.
        sent_timeout_ms: `anabranch-timeout-ms`.
        sent_priority: `anabranch-priority`.
        sent_routing_key: `anabranch-routing-key`.
        trace: what `traceparent` and `tracestate` name.
    """

    request_id: str | bytes | None = None
    sent_timeout_ms: str | bytes | None = None
    sent_priority: str | bytes | None = None
    sent_routing_key: str | bytes | None = None
    trace: TraceContext | None = None

    def timeout_s(self) -> float | None:
        """Return the timeout in seconds; None if absent.

        Raises:
            InvalidInput: it is not a decimal number of milliseconds.
        """
        if self.sent_timeout_ms is None:
            return None
        return float(_matched("anabranch-timeout-ms", self.sent_timeout_ms, _TIMEOUT)) / 1000

    def priority(self) -> int:
        """Return the priority; 0, the default level, if absent.

        Raises:
            InvalidInput: it is not a decimal integer.
        """
        if self.sent_priority is None:
            return 0
        return int(_matched("anabranch-priority", self.sent_priority, _PRIORITY))

    def routing_key(self) -> str | None:
        """Return the routing key; None if absent."""
        key = self.sent_routing_key
        return key.decode("utf-8", "replace") if isinstance(key, bytes) else key


def read_metadata(entries: Iterable[tuple[str, str | bytes]] | None) -> CallMetadata:
    """Pick the entries this server knows; of a repeated key the last one counts."""
    request_id: str | bytes | None = None
    timeout_ms: str | bytes | None = None
    priority: str | bytes | None = None
    routing_key: str | bytes | None = None
    parent: str | bytes | None = None
    state: str | bytes | None = None
    for key, value in entries or ():
        if key == "x-request-id":
            request_id = value
        elif key == "anabranch-timeout-ms":
            timeout_ms = value
        elif key == "anabranch-priority":
            priority = value
        elif key == "anabranch-routing-key":
            routing_key = value
        elif key == "traceparent":
            parent = value
        elif key == "tracestate":
            state = value
    trace = None if parent is None else read_trace(parent, state)
    return CallMetadata(request_id, timeout_ms, priority, routing_key, trace)


def address_of(peer: str) -> str:
    """Return the address in what gRPC calls a peer, as HTTP names it.

    Args:
        peer: such as `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`.
    """
    kind, _, rest = peer.partition(":")
    host = rest.rpartition(":")[0]
    if kind != "ipv6":
        return host
    return unquote(host).strip("[]").removeprefix("::ffff:")


def _matched(key: str, value: str | bytes, form: re.Pattern[str]) -> str:
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    if form.fullmatch(text) is None:
        raise InvalidInput(f"metadata {key} {text[:40]!r}: expected decimal digits")
    return text
