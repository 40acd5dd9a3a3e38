"""Snapshots as people name them: `DIR/model/42+17`, or a model's folder and `42+17`."""

from pathlib import Path

from anabranch_wire.errors import InvalidInput, NotFound
from anabranch_wire.names import check_model_name
from anabranch_wire.snapshots import Snapshot

__all__ = ["SnapshotPlace", "model_place", "snapshot_place"]

SnapshotPlace = tuple[Path, Snapshot]
"""A model's folder, and a snapshot of it."""


def snapshot_place(text: str) -> SnapshotPlace:
    """Return what `DIR/model/42+17` names.

    Raises:
        InvalidInput: it names no snapshot.
        NotFound: there is no such folder of a model.
    """
    place = _local(text)
    return model_place(str(place.parent), place.name)


def model_place(folder: str, snapshot: str) -> SnapshotPlace:
    """Return a snapshot of the model in a folder.

    Raises:
        InvalidInput: it is no snapshot, or the folder has no name of a model.
        NotFound: there is no such folder.
    """
    model = _local(folder).absolute()
    found = Snapshot.parse(check_model_name(model.name), snapshot)
    if not model.is_dir():
        raise NotFound(f"{folder}: no such folder")
    return model, found


def _local(text: str) -> Path:
    """Return a path of this machine; URLs of other kinds are refused."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return Path(text)
    if scheme == "file":
        return Path(rest)
    raise InvalidInput(
        f"{text}: only folders of this machine are compared here; let a server that serves the "
        "model do it: anabranch diff MODEL A B --admin URL"
    )
