"""Published deltas in the folder of a version: each is read by its number.

None are listed, but where so many numbers are asked about that a listing costs less.
"""

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch_model_store.containment import read_inside
from anabranch_model_store.deltas.faults import DeltaConflict, DeltaCorrupt
from anabranch_wire.delta import FILE_NAME, Delta, decode
from anabranch_wire.errors import InvalidInput, NotFound, TooLarge, Unavailable
from anabranch_wire.snapshots import Snapshot

__all__ = ["DeltaNumbers", "check_base", "read_delta"]

_MAX_BYTES: Final = 16 * 1024 * 1024
_NAME: Final = re.compile(r"[0-9]{8}")
_UNLISTED: Final = 4096
"""Numbers that are asked for one by one sooner than all names are listed."""


class DeltaNumbers:
    """Which numbers of deltas are worth asking for. Belongs to one thread.

    Args:
        folder: of the version.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "deltas"
        self._listed: memoryview[int] | None = None

    def between(self, first: int, last: int) -> Sequence[int]:
        """Return numbers from `first` to `last`, rising: every one that may be there, or more.

        Raises:
            Unavailable: the folder cannot be listed.
        """
        if last - first < _UNLISTED:
            return range(first, last + 1)
        if self._listed is None:
            self._listed = memoryview(array("q", self._numbers()))
        listed = self._listed
        return listed[bisect_left(listed, first) : bisect_right(listed, last)]

    def _numbers(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Unavailable(f"deltas: cannot be listed: {error.strerror}") from None
        return sorted(int(name) for name in names if _NAME.fullmatch(name))


def read_delta(folder: Path, sequence: int) -> Delta | None:
    """Return a delta of a version; None where it is not published.

    Args:
        folder: of the version.
        sequence: number of the delta.

    Raises:
        DeltaCorrupt: it is malformed, too long, or says another number than its folder.
        Unsupported: its format is newer than this release reads.
        Unavailable: it cannot be read.
    """
    try:
        delta = decode(read_inside(folder, f"deltas/{sequence:08}/{FILE_NAME}", _MAX_BYTES))
    except NotFound:
        return None
    except (InvalidInput, TooLarge) as error:
        raise DeltaCorrupt("invalid", error.message) from None
    if delta.sequence != sequence:
        raise DeltaCorrupt(
            "invalid", f"{FILE_NAME} says sequence {delta.sequence}, but lies in {sequence:08}"
        )
    return delta


def check_base(delta: Delta, snapshot: Snapshot, identity: str) -> None:
    """Check that a delta is one of a version.

    Args:
        delta: as it was read.
        snapshot: model and version.
        identity: of the version, as deltas name their base.

    Raises:
        DeltaConflict: it is not; says what was expected and found.
    """
    found = (delta.model, delta.version, delta.base.identity)
    expected = (snapshot.model, snapshot.version, identity)
    for what, one, other in zip(
        ("model", "version", "base.identity"), expected, found, strict=True
    ):
        if one != other:
            raise DeltaConflict(
                "wrong_base",
                f"{what}: expected {one}, found {other}; it was made for another version, or for "
                "other files of this one: publish it for what is served",
            )
