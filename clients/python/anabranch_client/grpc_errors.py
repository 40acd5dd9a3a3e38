"""Errors of the tree, rebuilt from how a gRPC call ended."""

from collections.abc import Iterable, Mapping
from typing import Final

import grpc

from anabranch_client.addresses import Address
from anabranch_client.policy import AttemptFailed, Blame, Failure, failure_of
from anabranch_wire import errors
from anabranch_wire.errors import AnabranchError, Overloaded

__all__ = ["Metadata", "attempt_failed", "error_from_grpc", "headers_of"]

Metadata = Iterable[tuple[str, str | bytes]]

_KINDS: Final[Mapping[str, type[AnabranchError]]] = {
    "CANCELLED": errors.Cancelled,
    "UNKNOWN": errors.Internal,
    "INVALID_ARGUMENT": errors.InvalidInput,
    "DEADLINE_EXCEEDED": errors.DeadlineExceeded,
    "NOT_FOUND": errors.NotFound,
    "ALREADY_EXISTS": errors.Conflict,
    "PERMISSION_DENIED": errors.PermissionDenied,
    "RESOURCE_EXHAUSTED": errors.TooLarge,
    "FAILED_PRECONDITION": errors.InvalidInput,
    "ABORTED": errors.Conflict,
    "OUT_OF_RANGE": errors.InvalidInput,
    "UNIMPLEMENTED": errors.Unsupported,
    "INTERNAL": errors.Internal,
    "UNAVAILABLE": errors.Unavailable,
    "DATA_LOSS": errors.Corrupt,
    "UNAUTHENTICATED": errors.Unauthenticated,
}

_ADVICE: Final = "grpc-retry-pushback-ms"

_REFUSED_BY_GRPC: Final = ("Concurrent RPC limit exceeded!",)
"""Texts with which a gRPC server itself, not the service behind it, says that it is busy."""


def error_from_grpc(status: str, text: str, headers: Mapping[str, str]) -> AnabranchError:
    """Return the error that a status other than OK stands for.

    RESOURCE_EXHAUSTED with advice when to come back is `Overloaded`, without it `TooLarge`.

    Args:
        status: name of the code.
        text: of the status.
        headers: trailing metadata.
    """
    if status == "RESOURCE_EXHAUSTED":
        advice = headers.get(_ADVICE, "")
        if advice.isascii() and advice.isdigit() and len(advice) < 10:
            return Overloaded(text, int(advice) / 1000)
        if text in _REFUSED_BY_GRPC:
            return Overloaded(text)
    return _KINDS.get(status, errors.Internal)(text)


def headers_of(metadata: Metadata | None) -> dict[str, str]:
    """Return metadata as headers; of a repeated name the last one."""
    return {
        name: value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in metadata or ()
    }


def attempt_failed(
    address: Address,
    code: grpc.StatusCode,
    text: str | None,
    metadata: Metadata | None,
) -> AttemptFailed | TimeoutError:
    """Return how an attempt failed; TimeoutError where nothing came until the deadline.

    An answer of the server is known by the request id that goes with every one of them.
    """
    headers = headers_of(metadata)
    answered = "x-request-id" in headers
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and not answered:
        return TimeoutError()
    error = error_from_grpc(code.name, text or code.name, headers)
    if answered or isinstance(error, Overloaded):
        failure = failure_of(error)
    elif code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        # Not ours: the server was stopped while it computed, or cannot be reached.
        error = errors.Unavailable(f"{address.authority}: {text or code.name}")
        failure = Failure(error, safe=True, blame=Blame.DOWN)
    else:
        failure = failure_of(error)
    if headers.get(_ADVICE, "").startswith("-"):  # gRPC retry design: do not come back
        failure = Failure(failure.error, blame=failure.blame, final=failure.final)
    return AttemptFailed(failure)
