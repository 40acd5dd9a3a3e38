"""Optimised graphs in the cache folder: built once, found again after a restart, cleared by size.

One folder for each key, put in place by rename and complete from then on; `built.json` in it says
what its files must be. A folder that does not pass that check is removed and built anew.
"""

import logging
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from anabranch_model_store.cache_entries import is_since, mark_used, name_of, newest_first, sync
from anabranch_model_store.hashing import file_sha256
from anabranch_wire.documents import Document, decode_json, encode_json
from anabranch_wire.errors import AnabranchError, Unavailable

__all__ = ["BuiltGraphs"]

_log = logging.getLogger(__name__)

_CHECKS: Final = "built.json"
_TEMPORARY: Final = ".building-"


class _BuiltFile(Document, frozen=True, kw_only=True):
    """One file of a folder."""

    name: str
    bytes: Annotated[int, Meta(ge=0)]
    sha256: str


class _Built(Document, frozen=True, kw_only=True):
    """What a folder must hold."""

    format: Literal[1] = 1
    files: tuple[_BuiltFile, ...]


class BuiltGraphs:
    """The folder of optimised graphs. For several processes, each with an object of its own.

    Args:
        folder: made on first use, mode 0700.
        limit_bytes: what `prune` keeps at most, beside what is in use.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes

    def get(self, key: str, write: Callable[[Path], object]) -> Path:
        """Return the folder of `key`, built by `write` where it is not there or damaged.

        Args:
            key: everything that the files depend on, in words of any kind.
            write: fills an empty folder with plain files, and folders of them.

        Raises:
            AnabranchError: what `write` raises.
            Unavailable: the cache folder cannot be written; says why.
        """
        place = self._place(key)
        was_there = place.exists()
        if was_there and self._is_sound(place):
            mark_used(place)
            return place
        if was_there:
            shutil.rmtree(place, ignore_errors=True)
        with self.scratch() as building:
            write(building)
            _seal(building)
            try:
                building.rename(place)
            except OSError:  # another process was faster
                if not self._is_sound(place):
                    raise
            sync(self._folder)
        return place

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give an empty folder on the file system of the others, for as long as it is needed.

        Raises:
            Unavailable: the cache folder cannot be written, here or in the block; says why.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            building = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self._folder))
            try:
                yield building
            finally:
                shutil.rmtree(building, ignore_errors=True)
        except OSError as error:
            raise Unavailable(f"cache folder: {error.strerror or error}") from None

    def prune(self, in_use: Collection[Path], since: float | None = None) -> None:
        """Remove what was used longest ago until the limit is kept; half-built folders too.

        What processes have mapped stays readable for them.

        Args:
            in_use: folders that `get` returned and that workers may still be told of.
            since: what was made or used at that time or later stays, seconds since 1970; another
                process may be at it, or about to tell of it.
        """
        kept_bytes = 0
        for place in newest_first(self._folder, Path.is_dir):
            if is_since(place, since):
                continue
            if place.name.startswith(_TEMPORARY):
                shutil.rmtree(place, ignore_errors=True)
                continue
            if place in in_use:
                continue
            kept_bytes += sum(map(_size, _files(place)))
            if kept_bytes > self._limit_bytes:
                _log.debug("cleared %s", place.name, extra={"event": "cache_cleared"})
                shutil.rmtree(place, ignore_errors=True)

    def _place(self, key: str) -> Path:
        return self._folder / name_of(key)

    @staticmethod
    def _is_sound(place: Path) -> bool:
        """Whether every file is there to the last bit."""
        try:
            built = decode_json((place / _CHECKS).read_bytes(), _Built, _CHECKS)
            return all(
                _size(place / file.name) == file.bytes
                and file_sha256(place / file.name) == file.sha256
                for file in built.files
            )
        except (OSError, AnabranchError):
            return False


def _seal(folder: Path) -> None:
    """Write what the files of `folder` are, and make sure that all of it is on the disk."""
    files = []
    for path in _files(folder):
        sync(path)
        name = path.relative_to(folder).as_posix()
        files.append(_BuiltFile(name=name, bytes=_size(path), sha256=file_sha256(path)))
    (folder / _CHECKS).write_bytes(encode_json(_Built(files=tuple(files)), _CHECKS))
    sync(folder / _CHECKS)
    for inner in filter(Path.is_dir, folder.rglob("*")):
        sync(inner)
    sync(folder)


def _files(folder: Path) -> list[Path]:
    return sorted(filter(Path.is_file, folder.rglob("*")))


def _size(path: Path) -> int:
    return path.stat().st_size
