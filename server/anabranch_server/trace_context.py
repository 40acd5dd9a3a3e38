"""Which trace a request belongs to, as the caller says it (W3C Trace Context, `traceparent`).

A valid context is answered with the same trace and a span of our own, under which log lines name
the request. A malformed one is as good as none, as the specification wants it.
"""

import random
import re
from typing import Final

import msgspec

__all__ = ["TraceContext", "read_trace"]

_PARENT: Final = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-.*)?"
)
_STATE: Final = re.compile(r"[\x20-\x7e]{1,512}")


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """The trace of one request.

    Attributes:
        trace_id: 32 hexadecimal digits, the caller's.
        span_id: 16 hexadecimal digits, ours.
        flags: 2 hexadecimal digits, the caller's.
        state: `tracestate` as sent; empty where there is none.
    """

    trace_id: str
    span_id: str
    flags: str
    state: str = ""

    @property
    def parent(self) -> str:
        """`traceparent` of the answer."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"

    def lines(self) -> bytes:
        """Return the lines of an HTTP head that echo it."""
        state = f"tracestate: {self.state}\r\n" if self.state else ""
        return f"traceparent: {self.parent}\r\n{state}".encode()

    def entries(self) -> tuple[tuple[str, str], ...]:
        """Return the entries of gRPC metadata that echo it."""
        parent = ("traceparent", self.parent)
        return (parent, ("tracestate", self.state)) if self.state else (parent,)


def read_trace(parent: str | bytes | None, state: str | bytes | None = None) -> TraceContext | None:
    """Return what the headers say; None without a valid `traceparent`.

    Args:
        parent: `traceparent` as sent.
        state: `tracestate` as sent; left out where it could not stand in a header.
    """
    if parent is None:
        return None
    if isinstance(parent, bytes):
        parent = parent.decode("latin-1")
    match = _PARENT.fullmatch(parent)
    # Later versions may say more behind the flags; this one may not.
    if match is None or (match[1] == "00" and match[4] is not None):
        return None
    if isinstance(state, bytes):
        state = state.decode("latin-1")
    if state is None or _STATE.fullmatch(state) is None:
        state = ""
    return TraceContext(match[2], f"{random.getrandbits(64) or 1:016x}", match[3], state)
