"""Why a version could not be served, as one word of a closed set: for logs, metrics and admin."""

from typing import Final, Literal

from anabranch_wire.errors import (
    AnabranchError,
    Conflict,
    Corrupt,
    DeadlineExceeded,
    InvalidInput,
    Mismatch,
    NotFound,
    TooLarge,
    Unavailable,
    Unsupported,
)

__all__ = ["FailureReason", "failure_reason"]

FailureReason = Literal[
    "checksum",
    "parity",
    "invalid",
    "unreachable",
    "too_large",
    "prepare_timeout",
    "behind",
    "internal",
]

_REASONS: Final[tuple[tuple[type[AnabranchError], FailureReason], ...]] = (
    (Corrupt, "checksum"),
    (Mismatch, "parity"),
    (InvalidInput, "invalid"),
    (Unsupported, "invalid"),
    (TooLarge, "too_large"),
    (NotFound, "invalid"),
    (Unavailable, "unreachable"),
    (DeadlineExceeded, "prepare_timeout"),
    (Conflict, "unreachable"),
)


def failure_reason(error: AnabranchError) -> FailureReason:
    """Return the word for `error`; what nobody foresaw is `internal`."""
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return "internal"
