"""One version folder, looked at again and again: what it holds, and since when it is still."""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from anabranch_model_store.containment import read_inside
from anabranch_model_store.repository import Ignored
from anabranch_model_store.settling import Stillness, is_settled, list_files, observe
from anabranch_server.supervisor.seen_deltas import NO_DELTAS, SeenDeltas
from anabranch_server.supervisor.watching_deltas import DeltaWatch
from anabranch_server.supervisor.watching_marks import FileMark, has_gone, mark
from anabranch_wire.errors import AnabranchError
from anabranch_wire.manifest import FILE_NAME, decode

__all__ = ["SeenVersion", "VersionWatch"]

_BESIDE: Final = ("warmup/", "golden/", "items/", "tables/")
"""What belongs to a version, but is not in the memory of each of its workers."""
_MAX_MANIFEST: Final = 64 * 1024 * 1024


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


class VersionWatch:
    """What is known of one version folder. Owned by one thread at a time.

    Args:
        model: name of the model.
        number: the version.
        folder: its real path.
        path: where it lies in the repository, links and all.
    """

    def __init__(self, model: str, number: int, folder: Path, path: str) -> None:
        self.folder = folder
        self._number = number
        self._path = path
        self._marks: list[tuple[str, FileMark | None]] = []
        self._stillness: Stillness | None = None
        self._seen: SeenVersion | None = None
        self._deltas = DeltaWatch(path, f"{model}/{number}", model, number)

    @property
    def ignored(self) -> frozenset[Ignored]:
        """What lies among its deltas and is none."""
        return self._deltas.ignored

    def look(self, now_s: float, wall_s: float, *, at_start: bool) -> SeenVersion | None:
        """Return what it holds; None where it has gone."""
        is_same = bool(self._marks) and all(mark(path) == known for path, known in self._marks)
        if not is_same:
            self._marks = []
            self._seen = self._list(now_s, wall_s, at_start=at_start)
        # A folder of deltas that comes shows in the version's own.
        if self._seen is not None and (self._deltas.are_there or not is_same):
            deltas = self._deltas.look(now_s, wall_s)
            if deltas is not self._seen.deltas:
                self._seen = replace(self._seen, deltas=deltas)
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
            if has_gone(self._path):
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
        if published and len(listing.files) == 1:  # of a remote repository
            size += self._named_bytes()
        return self._new_or_same(published, digest.hexdigest(), size)

    def _named_bytes(self) -> int:
        """How many bytes the manifest names of what will be in memory."""
        try:
            named = decode(read_inside(Path(self._path), FILE_NAME, _MAX_MANIFEST)).files
        except AnabranchError:
            return 0
        return sum(file.bytes for file in named if not file.path.startswith(_BESIDE))

    def _paths(self, folders: tuple[str, ...]) -> list[str]:
        return [self._path, *(os.path.join(self._path, folder) for folder in folders)]

    def _new_or_same(self, published: bool, fingerprint: str, size: int) -> SeenVersion:
        deltas = NO_DELTAS if self._seen is None else self._seen.deltas
        new = SeenVersion(self._number, self.folder, published, fingerprint, size, deltas)
        return self._seen if self._seen == new and self._seen is not None else new
