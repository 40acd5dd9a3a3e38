"""Published deltas in the folder of a version: each is read by its number, none are listed."""

from pathlib import Path
from typing import Final

from anabranch_model_store.containment import read_inside
from anabranch_model_store.deltas.faults import DeltaConflict, DeltaCorrupt
from anabranch_wire.delta import FILE_NAME, Delta, decode
from anabranch_wire.errors import InvalidInput, NotFound, TooLarge
from anabranch_wire.snapshots import Snapshot

__all__ = ["check_base", "read_delta"]

_MAX_BYTES: Final = 16 * 1024 * 1024


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
