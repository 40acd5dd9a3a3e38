"""Where the files of versions and deltas come from: this machine, or somewhere far away."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from anabranch_model_store.containment import resolve_inside
from anabranch_model_store.deltas.faults import DeltaCorrupt
from anabranch_wire.delta import Delta
from anabranch_wire.errors import InvalidInput, NotFound

__all__ = ["LocalOrigin", "Origin", "attempt_folder"]

OnBytes = Callable[[int, int], None]
"""Told how many bytes of how many are there."""


class Origin(Protocol):
    """Brings files onto this machine. Used by one thread."""

    def version(self, folder: Path, on_bytes: OnBytes) -> Path:
        """Return a folder with every file of a version but its deltas.

        Args:
            folder: the version as the repository shows it.
            on_bytes: told how far it is.

        Raises:
            AnabranchError: why they cannot be had; `Unavailable` where that may pass.
        """
        ...

    def attempt(self, folder: Path, delta: Delta) -> Path:
        """Return a folder with every file of a delta.

        Args:
            folder: the version as the repository shows it.
            delta: which one; its files lie in the folder under their own paths.

        Raises:
            AnabranchError: why they cannot be had; `Unavailable` where that may pass.
        """
        ...


class LocalOrigin:
    """A repository on a file system of this machine: everything is where it is."""

    def version(self, folder: Path, on_bytes: OnBytes) -> Path:
        """See `Origin`."""
        return folder

    def attempt(self, folder: Path, delta: Delta) -> Path:
        """See `Origin`."""
        return attempt_folder(folder, delta)


def attempt_folder(folder: Path, delta: Delta) -> Path:
    """Return where the files of a delta lie below its version's folder.

    Raises:
        DeltaCorrupt: a link leads out of the version.
        Unavailable: it cannot be reached now.
    """
    place = f"deltas/{delta.sequence:08}/{delta.attempt}"
    try:
        return resolve_inside(folder, place)
    except NotFound:
        return folder / place  # each file says that it is missing
    except InvalidInput as error:
        raise DeltaCorrupt("invalid", error.message) from None
