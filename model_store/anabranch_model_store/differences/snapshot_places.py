"""Snapshots as people name them: `DIR/model/42+17`, or a model's folder and `42+17`."""

from pathlib import Path

from anabranch_wire.errors import NotFound
from anabranch_wire.names import check_model_name
from anabranch_wire.snapshots import Snapshot

__all__ = ["SnapshotPlace", "model_place", "split_place"]

SnapshotPlace = tuple[Path, Snapshot]
"""A model's folder, and a snapshot of it."""


def split_place(text: str) -> tuple[str, str]:
    """Return the folder, or URL, of the model and the snapshot that `DIR/model/42+17` names.

    Raises:
        InvalidInput: it names no snapshot.
    """
    folder, slash, snapshot = text.rstrip("/").rpartition("/")
    if not slash:
        folder, snapshot = ".", text
    Snapshot.parse("", snapshot)
    return folder or "/", snapshot


def model_place(folder: Path, snapshot: str) -> SnapshotPlace:
    """Return a snapshot of the model in a folder.

    Raises:
        InvalidInput: it is no snapshot, or the folder has no name of a model.
        NotFound: there is no such folder.
    """
    model = folder.absolute()
    found = Snapshot.parse(check_model_name(model.name), snapshot)
    if not model.is_dir():
        raise NotFound(f"{folder}: no such folder")
    return model, found
