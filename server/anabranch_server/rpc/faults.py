"""Errors of the tree as gRPC statuses."""

import logging
import math
from collections.abc import Mapping
from typing import Final, NoReturn

import grpc

from anabranch_server.trace_context import TraceContext
from anabranch_wire.errors import AnabranchError, Internal, Overloaded

__all__ = ["abort", "internal_fault"]

_LOGGER = logging.getLogger(__name__)

_CODES: Final[Mapping[str, grpc.StatusCode]] = {code.name: code for code in grpc.StatusCode}

_TEXT_BYTES: Final = 2048
"""Longest status text. Clients drop trailers above 8 KiB, and every non-ASCII byte takes three."""


def abort(
    call: grpc.ServicerContext,
    error: AnabranchError,
    request_id: str,
    trace: TraceContext | None = None,
) -> NoReturn:
    """End `call` with the status of `error`, its text and, if it is overload, when to come back."""
    trailers = [("x-request-id", request_id), *(trace.entries() if trace is not None else ())]
    if isinstance(error, Overloaded):
        trailers.append(("grpc-retry-pushback-ms", str(math.ceil(error.retry_after_s * 1000))))
    call.set_trailing_metadata(tuple(trailers))
    call.abort(_CODES[error.grpc], _clip(error.message))
    raise AssertionError("abort raises")


def internal_fault(request_id: str) -> Internal:
    """Log the exception being handled, and return what the caller may know of it."""
    _LOGGER.exception("internal error", extra={"event": "internal_error", "request_id": request_id})
    return Internal(f"internal error, request {request_id}")


def _clip(text: str) -> str:
    data = text.encode(errors="replace")
    if len(data) <= _TEXT_BYTES:
        return text
    return data[:_TEXT_BYTES].decode(errors="ignore") + " ..."
