"""What the door knows of a hot request beside its tensors."""

import logging
from typing import Final
from typing import Protocol as Interface

import msgspec

from anabranch_server.doors import Protocol, RequestObserver
from anabranch_server.http.answers import KEEPS
from anabranch_server.http.content_coding import Coding
from anabranch_server.http.loop_sink import Settled
from anabranch_server.trace_context import TraceContext
from anabranch_wire.errors import AnabranchError, Internal

__all__ = ["Call", "Line", "public"]

_LOGGER: Final = logging.getLogger(__name__)


class Line(Settled, Interface):
    """A connection, as its requests see it.

    Attributes:
        is_gone: nobody is left to answer.
        observer: is told how requests ended.
    """

    is_gone: bool
    observer: RequestObserver


class Call(msgspec.Struct, frozen=True, gc=False):
    """One hot request as HTTP sees it.

    Attributes:
        line: the connection it came through.
        protocol: its name in metrics.
        model: as sent.
        request_id: echoed.
        received: `time.monotonic()` when its last byte came.
        bytes_in: body bytes as received.
        ending: last lines of the answer's head: what the caller wants of the connection.
        accepts: how the answer may be compressed.
        is_head: the answer must not have a body.
        trace: which trace the caller counts it to.
    """

    line: Line
    protocol: Protocol
    model: str
    request_id: str
    received: float
    bytes_in: int
    ending: bytes = KEEPS
    accepts: Coding | None = None
    is_head: bool = False
    trace: TraceContext | None = None


def public(error: Exception, request_id: str) -> AnabranchError:
    """Return what the caller may know of `error`; faults of the server are logged instead."""
    if isinstance(error, AnabranchError) and error.http != Internal.http:
        # Frames of a traceback hold the turn, which holds the error: in that circle the model's
        # version would live on until the collector comes.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error
    _LOGGER.error(
        "internal error",
        exc_info=error,
        extra={"event": "internal_error", "request_id": request_id},
    )
    return Internal(f"internal error, request {request_id}")
