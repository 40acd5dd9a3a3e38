"""One version folder, looked at again and again: what it holds, and since when it is still."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from anabranch_model_store.settling import Stillness, is_settled, list_files, observe
from anabranch_server.supervisor.seen_deltas import NO_DELTAS, SeenDeltas
from anabranch_wire.errors import AnabranchError
from anabranch_wire.manifest import FILE_NAME

__all__ = ["FileMark", "SeenVersion", "VersionWatch", "mark"]

_FRESH_S: Final = 2.0
"""Clocks of file systems are coarse: what changed this recently may change again unseen."""
_BESIDE: Final = ("warmup/", "golden/", "items/", "tables/")
"""What belongs to a version, but is not in the memory of each of its workers."""


class FileMark(NamedTuple):
    """What changes when a file or folder does."""

    device: int
    inode: int
    bytes: int
    modified_ns: int

    @property
    def fingerprint(self) -> str:
        """What stays the same over a remount."""
        return f"{self.inode} {self.bytes} {self.modified_ns}"

    def is_fresh(self, wall_s: float) -> bool:
        """Whether it has changed so recently that a further change may look the same."""
        return self.modified_ns / 1e9 > wall_s - _FRESH_S


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """A version folder as it was seen.

    Attributes:
        number: the version.
        path: real path.
        published: whether it has a manifest.
        fingerprint: changes whenever one of its files does.
        bytes: of its files that each worker holds in memory, at most.
        deltas: what has been published for it since; no part of the fingerprint.
    """

    number: int
    path: Path
    published: bool
    fingerprint: str
    bytes: int
    deltas: SeenDeltas = NO_DELTAS


def mark(path: str) -> FileMark | None:
    """Return what tells a file or folder from a changed one; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileMark(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _has_gone(path: str) -> bool:
    """Whether there is no such folder any more; one that cannot be seen now has not gone."""
    try:
        return not stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


class VersionWatch:
    """What is known of one version folder. Owned by one thread at a time.

    Args:
        number: the version.
        folder: its real path.
        path: where it lies in the repository, links and all.
    """

    def __init__(self, number: int, folder: Path, path: str) -> None:
        self.folder = folder
        self._number = number
        self._path = path
        self._marks: list[tuple[str, FileMark | None]] = []
        self._stillness: Stillness | None = None
        self._seen: SeenVersion | None = None

    def look(self, now_s: float, wall_s: float, *, at_start: bool) -> SeenVersion | None:
        """Return what it holds; None where it has gone."""
        if self._marks and all(mark(path) == known for path, known in self._marks):
            return self._seen
        self._marks = []
        self._seen = self._list(now_s, wall_s, at_start=at_start)
        return self._seen

    def is_settled(self, now_s: float, settle_s: float) -> bool:
        """Whether nothing has changed for long enough; a folder that cannot be listed counts so."""
        if self._stillness is None:
            return True
        return is_settled(self._stillness, now_s=now_s, settle_s=settle_s)

    def _list(self, now_s: float, wall_s: float, *, at_start: bool) -> SeenVersion | None:
        try:
            listing = list_files(Path(self._path))
        except AnabranchError as error:
            if _has_gone(self._path):
                return None
            # Loading it will say what is wrong.
            self._stillness = None
            return self._new_or_same(False, error.message, 0)
        marks = [(path, mark(path)) for path in self._paths(listing.folders)]
        files = [(file.path, os.path.join(self._path, file.path)) for file in listing.files]
        digest = hashlib.sha256()
        size = 0
        for relative, path in files:
            found = mark(path)
            marks.append((path, found))
            if found is None:
                continue
            digest.update(f"{relative}\0{found.fingerprint}\n".encode())
            if not relative.startswith(_BESIDE):
                size += found.bytes
        self._stillness = observe(
            listing, self._stillness, now_s=now_s, wall_s=wall_s, at_start=at_start
        )
        if not any(known is None or known.is_fresh(wall_s) for _, known in marks):
            self._marks = marks
        published = any(file.path == FILE_NAME for file in listing.files)
        return self._new_or_same(published, digest.hexdigest(), size)

    def _paths(self, folders: tuple[str, ...]) -> list[str]:
        return [self._path, *(os.path.join(self._path, folder) for folder in folders)]

    def _new_or_same(self, published: bool, fingerprint: str, size: int) -> SeenVersion:
        new = SeenVersion(self._number, self.folder, published, fingerprint, size)
        return self._seen if self._seen == new and self._seen is not None else new
