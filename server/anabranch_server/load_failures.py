"""Why a version or delta is not served, as one word of a closed set: for logs, metrics, admin."""

from typing import Final, Literal, cast, get_args

from anabranch_model_store.full_disks import is_disk_full
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

__all__ = ["FailureReason", "failure_reason", "known_reason"]

FailureReason = Literal[
    "checksum", "truncated", "gap", "wrong_base", "shape", "unknown_table", "non_finite", "parity",
    "disk_full", "store_full", "invalid", "unreachable", "too_large", "prepare_timeout", "behind",
    "internal",
]  # fmt: skip

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
    if isinstance(error, Unavailable) and is_disk_full(error):
        return "disk_full"
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return "internal"


def known_reason(word: str, error: AnabranchError) -> FailureReason:
    """Return `word` where it is one of the set, else that of `error`."""
    if word in get_args(FailureReason):
        return cast(FailureReason, word)
    return failure_reason(error)
