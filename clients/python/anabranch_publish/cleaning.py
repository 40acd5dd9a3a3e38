"""Taking away what publishers left, and what later deltas replace; never what is still needed."""

from typing import Final

from anabranch_publish.local_storage import CLAIM
from anabranch_publish.published_deltas import PublishedDeltas

__all__ = ["STALE_S", "clean", "clean_number", "prune"]

STALE_S: Final = 6 * 3600.0
"""How long nothing has changed in the files of a publisher that is not at work any more."""


def clean(deltas: PublishedDeltas, stale_s: float, now: float) -> int:
    """Remove the files of attempts that came to nothing, at all numbers; returns how many.

    Args:
        deltas: of a version.
        stale_s: how long nothing has changed in them.
        now: seconds since 1970.

    Raises:
        OSError: the file system refused.
    """
    return sum(clean_number(deltas, sequence, stale_s, now) for sequence in deltas.numbers())


def clean_number(deltas: PublishedDeltas, sequence: int, stale_s: float, now: float) -> int:
    """As `clean`, at one number."""
    storage = deltas.storage
    stale = [
        attempt
        for attempt in deltas.attempts(sequence)
        if _is_stale(storage.last_change(deltas.attempt_folder(sequence, attempt)), stale_s, now)
    ]
    if not stale:
        return 0
    # Read after the folders were looked at: what became a delta meanwhile is in it.
    document = deltas.document(sequence)
    removed = 0
    for attempt in stale:
        if document is None or document.attempt != attempt:
            storage.remove(deltas.attempt_folder(sequence, attempt))
            removed += 1
    if document is None and removed:
        storage.remove(f"{deltas.folder(sequence)}/{CLAIM}")
    return removed


def prune(deltas: PublishedDeltas, keep: int, age_s: float, now: float) -> list[int]:
    """Remove deltas that a later one replaces; returns their numbers, the oldest first.

    Args:
        deltas: of a version.
        keep: how many of those that are replaced stay, the newest ones.
        age_s: how long the one that replaces them has been there: time for servers to apply it.
        now: seconds since 1970.

    Raises:
        InvalidInput, Unsupported: a document is malformed, or newer than this release reads.
        OSError: the file system refused.
    """
    replaced: list[int] = []
    first = None
    for sequence in deltas.numbers():
        document = deltas.document(sequence)
        if document is None:
            continue
        if first is not None and sequence >= first:
            replaced.append(sequence)
        if now - document.created >= age_s and document.replaces_from < sequence:
            first = min(first or sequence, document.replaces_from)
    for sequence in (gone := sorted(replaced[keep:])):
        # Its document first: nobody is to find one whose files are gone.
        deltas.storage.remove(deltas.document_path(sequence))
        deltas.storage.remove(deltas.folder(sequence))
    return gone


def _is_stale(changed: float | None, stale_s: float, now: float) -> bool:
    return changed is not None and now - changed >= stale_s
