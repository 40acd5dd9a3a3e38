"""What cached runs and weights are made of: which publication of which delta, not numbers alone.

A number may be given again: to a delta that takes the place of a refused one, or of one that
somebody removed. What was made of the one before has its marks, and is not taken for the new one.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.published import Published
from anabranch_wire.delta import Delta

__all__ = [
    "MARK",
    "NO_MARKS",
    "Marks",
    "is_part",
    "is_published",
    "joined",
    "lineage_name",
    "mark_of",
    "marks_of",
    "newest_of",
]

MARK: Final = np.dtype([("number", "<u4"), ("mark", "<u8")])
Marks = NDArray[np.void]
"""(n,) of `MARK`, by rising numbers: deltas, and for each what tells its publications apart."""

NO_MARKS: Final[Marks] = np.zeros(0, MARK)
NO_MARKS.flags.writeable = False


def mark_of(delta: Delta) -> int:
    """Return what tells a delta from others that have or had its number: 64 bits of a digest.

    A trainer may choose names of attempts, so that a name alone may come again with other files.
    """
    digest = hashlib.sha256(f"{delta.attempt} {delta.replaces_from}\n".encode())
    for table in delta.tables:
        digest.update(f"{table.name!r} {table.file!r}\n".encode())
    for file in delta.files:
        digest.update(f"{file.path!r} {file.sha256}\n".encode())
    return int.from_bytes(digest.digest()[:8], "little")


def joined(parts: Iterable[Marks]) -> Marks:
    """Return the marks of runs that follow each other."""
    return np.concatenate([NO_MARKS, *parts])


def lineage_name(marks: Marks) -> str:
    """Return 16 hexadecimal digits that tell marks from others."""
    return hashlib.sha256(marks.tobytes()).hexdigest()[:16]


def is_part(marks: Marks, first: int, last: int, whole: Marks) -> bool:
    """Whether a run is made of exactly those deltas that others are made of between two numbers.

    Args:
        marks: of the run.
        first: the first delta of it.
        last: the last one.
        whole: marks of the others, which follow each other.
    """
    begin, end = np.searchsorted(whole["number"], [first, last + 1])
    return bool(len(marks)) and np.array_equal(marks, whole[begin:end])


def is_published(marks: Iterable[tuple[int, int]], published: Published) -> bool:
    """Whether none of some deltas is published now as another one.

    One that was removed is not, nor one that cannot be read: what was made of it stays, as deltas
    that a later one replaces may go at any time, and a start is never behind what was served.

    Args:
        marks: number and mark of each.
        published: the deltas as they are now; each that is asked about is read once.
    """
    for number, mark in marks:
        delta = published.peek(number)
        if delta is not None and mark_of(delta) != mark:
            return False
    return True


def newest_of(marks: Marks, since: int) -> Iterator[tuple[int, int]]:
    """Yield number and mark of the last delta, and of those from a number on, the newest first."""
    if len(marks):
        begin = min(int(np.searchsorted(marks["number"], since)), len(marks) - 1)
        for one in marks[begin:][::-1]:
            yield int(one["number"]), int(one["mark"])


def marks_of(pairs: Sequence[tuple[int, int]]) -> Marks:
    """Return marks of deltas, given as number and mark of each, by rising numbers."""
    return np.array(pairs, MARK)
