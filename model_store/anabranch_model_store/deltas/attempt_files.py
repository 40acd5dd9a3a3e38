"""The files of a delta as if they were those of a version: for what reads either."""

from pathlib import Path
from types import MappingProxyType

from anabranch_model_store.version_files import VersionFiles
from anabranch_wire.delta import Delta

__all__ = ["attempt_files"]


def attempt_files(folder: Path, delta: Delta) -> VersionFiles:
    """Return the files that a delta lists.

    Args:
        folder: of its attempt, where all of them were found to be right.
        delta: as it was published.
    """
    listed = sorted(delta.files, key=lambda one: one.path)
    return VersionFiles(
        folder.resolve(),
        None,
        delta.base.identity,
        MappingProxyType({one.path: one.bytes for one in listed}),
        MappingProxyType({one.path: one.sha256 for one in listed if one.sha256}),
    )
