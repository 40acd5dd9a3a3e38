"""Why a delta cannot be applied: an error of the tree, and one word for logs and metrics."""

from dataclasses import dataclass
from typing import Final, Literal

from anabranch_model_store.full_disks import is_disk_full
from anabranch_wire.errors import (
    AnabranchError,
    Conflict,
    Corrupt,
    Internal,
    InvalidInput,
    Mismatch,
    NotFound,
    TooLarge,
    Unavailable,
    Unproven,
    Unsupported,
)

__all__ = ["DeltaConflict", "DeltaCorrupt", "DeltaReason", "Fault", "fault_of", "gap"]

DeltaReason = Literal[
    "checksum", "truncated", "gap", "wrong_base", "shape", "unknown_table", "non_finite", "parity",
    "disk_full", "unreachable", "too_large", "invalid", "internal",
]  # fmt: skip
"""Of the reasons of failed reloads those that deltas have before they are switched to."""


class DeltaConflict(Conflict):
    """A delta does not go with what it would be applied to.

    Attributes:
        reason: in one word.
    """

    def __init__(self, reason: DeltaReason, message: str) -> None:
        super().__init__(message)
        self.reason: DeltaReason = reason


class DeltaCorrupt(Corrupt):
    """A delta is not what it says of itself, or not what may be served.

    Attributes:
        reason: in one word.
    """

    def __init__(self, reason: DeltaReason, message: str) -> None:
        super().__init__(message)
        self.reason: DeltaReason = reason


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a delta is not applied.

    Attributes:
        sequence: its number; of a gap, the number that is missing.
        reason: in one word.
        error: of the tree itself, as other processes know it.
    """

    sequence: int
    reason: DeltaReason
    error: AnabranchError


_REASONS: Final[tuple[tuple[type[AnabranchError], DeltaReason], ...]] = (
    (Mismatch, "parity"),
    (Unproven, "checksum"),
    (Corrupt, "checksum"),
    (InvalidInput, "invalid"),
    (Unsupported, "invalid"),
    (NotFound, "invalid"),
    (TooLarge, "too_large"),
    (Conflict, "shape"),
)


def fault_of(sequence: int, error: AnabranchError | OSError) -> Fault:
    """Return why a delta is not applied, from what was raised over it.

    Args:
        sequence: its number.
        error: of the tree, or one of the system in the cache folder.
    """
    if isinstance(error, OSError):
        text = f"delta {sequence}: cache folder: {error.strerror or error}"
        return Fault(sequence, _unavailable(error), Unavailable(text))
    text = f"delta {sequence}: {error.message}"
    if isinstance(error, DeltaConflict):
        return Fault(sequence, error.reason, Conflict(text))
    if isinstance(error, DeltaCorrupt):
        return Fault(sequence, error.reason, Corrupt(text))
    if isinstance(error, Unavailable):
        return Fault(sequence, _unavailable(error), Unavailable(text))
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return Fault(sequence, reason, kind(text))
    return Fault(sequence, "internal", Internal(text))


def _unavailable(error: BaseException) -> DeltaReason:
    return "disk_full" if is_disk_full(error) else "unreachable"


def gap(sequence: int, applied: int) -> Fault:
    """Return that a delta is missing which later ones need.

    Args:
        sequence: the number that is missing.
        applied: the newest delta that is applied.
    """
    text = (
        f"delta {sequence} is missing, and no later one holds what it held: found deltas up to "
        f"{applied}; publish it, or a cumulative one that replaces_from {applied + 1} or before"
    )
    return Fault(sequence, "gap", Conflict(text))
