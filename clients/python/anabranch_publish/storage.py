"""Where a model's folder lies: the few things that publishing asks of a file system.

Paths are relative to the model's folder, with `/` between parts. What a document names is durable
before the document is there; a document is created once, by one of any number of processes.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from anabranch_wire.places import local_path

__all__ = ["Storage", "Upload", "open_storage"]


class Upload(Protocol):
    """A folder on its way: written on this machine, then in the repository. For one thread."""

    @property
    def folder(self) -> Path:
        """Where its files are to be written, each synced."""
        ...

    def send(self) -> None:
        """Make it durable at its path in the repository.

        Raises:
            OSError: the file system refused.
        """
        ...

    def move(self, path: str) -> None:
        """Take it away from its path, to be sent to another.

        Raises:
            OSError: the file system refused.
        """
        ...

    def close(self, *, keep: bool) -> None:
        """Let go of it; unless it is kept, nothing of it stays in the repository."""
        ...


class Storage(Protocol):
    """A model's folder. For one thread."""

    @property
    def url(self) -> str:
        """How people name the folder."""
        ...

    @property
    def model(self) -> str:
        """The folder's own name."""
        ...

    def names(self, path: str) -> frozenset[str]:
        """Return the names of files and folders in a folder; none where it is not there.

        Raises:
            OSError: the file system refused.
        """
        ...

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file; None where it is not there.

        Raises:
            OSError: the file system refused.
        """
        ...

    def create(self, path: str, data: bytes) -> None:
        """Make a file: whole, durable, and only if there is none.

        Raises:
            FileExistsError: there is one. It may be from this very call, where an answer was lost.
            Unsupported: the file system cannot do that.
            OSError: the file system refused; whether the file is there is not known.
        """
        ...

    def put(self, source: Path, path: str) -> None:
        """Copy a file of this machine; it is durable, or replaced, when this returns.

        Raises:
            OSError: the file system refused.
        """
        ...

    def settle(self, path: str) -> None:
        """Make sure that a file that is there stays there.

        Raises:
            OSError: the file system refused.
        """
        ...

    def begin(self, path: str) -> Upload:
        """Begin a folder.

        Raises:
            OSError: the file system refused.
        """
        ...

    def fetch(self, path: str) -> AbstractContextManager[Path]:
        """Return a folder with the files of a folder, to be read while the context is open.

        Raises:
            OSError: the file system refused.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all in it; nothing where it is not there.

        Raises:
            OSError: the file system refused.
        """
        ...

    def last_change(self, path: str) -> float | None:
        """Return when anything in a folder changed last, in seconds since 1970.

        None where that is not known, or somebody is at work in it.
        """
        ...


def open_storage(place: str | Path, options: Mapping[str, object] | None = None) -> Storage:
    """Return a model's folder.

    Args:
        place: a path, `file://...`, or a URL of a file system that fsspec knows, as `s3://...`.
        options: of that file system.

    Raises:
        InvalidInput: nobody knows such a URL, or the folder's name is that of no model.
        Unsupported: the packages for such a URL are not installed.
    """
    from anabranch_publish.local_storage import LocalStorage

    path = local_path(place)
    if path is None:
        from anabranch_publish.remote_storage import open_remote

        return open_remote(str(place), options or {})
    return LocalStorage(path)
