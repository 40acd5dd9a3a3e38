"""What was fetched of a remote repository: versions and deltas in the cache folder, by content.

`fetched/<identity>/version/` has the files of the version of that identity, and
`fetched/<identity>/deltas/<number>-<attempt>/` those of a delta. Each such folder is an entry: used
now, or cleared, what was used longest ago first.
"""

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from anabranch_model_store.cache_entries import is_since, mark_used
from anabranch_model_store.sources.downloads import Download, Downloads, missing_bytes
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import Unavailable

__all__ = ["Fetched"]

_log = logging.getLogger(__name__)

_VERSION: Final = "version"
_DELTAS: Final = "deltas"
_MOST: Final = 256
"""Deltas that stay although nothing uses them: each look at the cache looks at all of them."""


class Fetched:
    """The fetched files of one server. For several processes, each with an object of its own.

    Args:
        folder: made on first use, mode 0700.
        limit_bytes: what is kept at most, beside what is in use.
        downloads: brings files.
    """

    def __init__(self, folder: Path, limit_bytes: int, downloads: Downloads) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._downloads = downloads
        self._in_use: tuple[Path, ...] = ()
        self._since: float | None = None

    def version(
        self,
        identity: str,
        remote: str,
        files: Sequence[ListedFile],
        on_bytes: Callable[[int, int], None],
    ) -> Path:
        """Return the folder with the files of a version.

        Raises:
            AnabranchError: as `Downloads.run`.
        """
        return self._entry(self._of(identity) / _VERSION, remote, files, on_bytes)

    def attempt(self, identity: str, name: str, remote: str, files: Sequence[ListedFile]) -> Path:
        """Return the folder with the files of a delta of a version; `name` tells it from others.

        Raises:
            AnabranchError: as `Downloads.run`.
        """
        place = self._of(identity) / _DELTAS / name
        return self._entry(place, remote, files, lambda done, total: None)

    def prune(self, in_use: Collection[Path], since: float | None = None) -> None:
        """Remove what was used longest ago until the limit is kept, and of deltas a few are left.

        Args:
            in_use: files that processes may still be told of; what they lie in stays.
            since: what was fetched or used at that time or later stays too, seconds since 1970;
                another process may be at it.
        """
        self._in_use, self._since = tuple(in_use), since
        self._clear(self._limit_bytes, None)

    def _entry(
        self,
        place: Path,
        remote: str,
        files: Sequence[ListedFile],
        on_bytes: Callable[[int, int], None],
    ) -> Path:
        wanted = [
            Download(f"{remote}/{one.path}", place / one.path, one.bytes, one.sha256)
            for one in files
        ]
        with _alone(place):
            mark_used(place)
            self._clear(self._limit_bytes - missing_bytes(wanted), place)
            self._downloads.run(wanted, on_bytes)
            mark_used(place)
        return place

    def _clear(self, limit_bytes: int, kept: Path | None) -> None:
        """Remove what was used longest ago, of what is not in use, beyond a limit."""
        held = deltas = 0
        for entry in sorted(self._entries(), key=_used, reverse=True):
            if entry == kept:
                held += _bytes_below(entry)
                continue
            if any(path.is_relative_to(entry) for path in self._in_use):
                continue
            if is_since(entry, self._since):
                continue
            deltas += entry.parent.name == _DELTAS
            is_one_of_many = entry.parent.name == _DELTAS and deltas > _MOST
            if not is_one_of_many:
                held += _bytes_below(entry)
            if is_one_of_many or held > limit_bytes:
                name = "/".join(entry.parts[-2:])
                _log.debug("cleared %s", name, extra={"event": "cache_cleared"})
                shutil.rmtree(entry, ignore_errors=True)
                for above in (entry.parent, entry.parent.parent):
                    if above != self._folder:
                        with suppress(OSError):  # not if others are in it
                            above.rmdir()

    def _entries(self) -> Iterator[Path]:
        with suppress(OSError):
            for version in list(self._folder.iterdir()):
                if (version / _VERSION).is_dir():
                    yield version / _VERSION
                with suppress(OSError):
                    yield from list((version / _DELTAS).iterdir())

    def _of(self, identity: str) -> Path:
        return self._folder / identity.removeprefix("sha256:")


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Make a folder and hold it: a server with the same cache folder waits, and then has it all."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Unavailable(f"cache folder: {error.strerror or error}") from None
    try:
        with suppress(OSError):  # locks are not everywhere
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _used(entry: Path) -> float:
    with suppress(OSError):
        return entry.stat().st_mtime
    return 0.0


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(place, name)).st_size
    return total
