"""Which version of which model a folder is, by its place or else by its manifest."""

from pathlib import Path
from typing import Final

from anabranch_model_store.containment import read_inside
from anabranch_model_store.folder_names import folder_name
from anabranch_wire import manifest
from anabranch_wire.errors import NotFound
from anabranch_wire.names import ModelName
from anabranch_wire.snapshots import Snapshot

__all__ = ["folder_snapshot"]

_MAX_MANIFEST: Final = 64 * 1024 * 1024


def folder_snapshot(folder: Path) -> Snapshot:
    """Return what a version folder is by its place, or, where that says nothing, by its manifest.

    Raises:
        InvalidInput, Unsupported: its manifest is malformed, or newer than this release reads.
        TooLarge, Unavailable: it cannot be read.
    """
    name = folder_name(folder, "model")
    if name.is_placed:
        return Snapshot(ModelName(name.model), name.version)
    try:
        document = manifest.decode(read_inside(folder, manifest.FILE_NAME, _MAX_MANIFEST))
    except NotFound:
        return Snapshot(ModelName(name.model), name.version)
    return Snapshot(ModelName(document.model), document.version)
