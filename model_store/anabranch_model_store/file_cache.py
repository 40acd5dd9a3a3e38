"""Files in the cache folder: made once for the same content, found again, cleared by size.

One file `<key><suffix>` for each content, complete from the moment it has that name, never changed
afterwards. What does not pass its own checksums is removed and made anew.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anabranch_model_store.cache_entries import (
    is_locked,
    is_since,
    mark_used,
    name_of,
    newest_first,
)
from anabranch_wire.errors import AnabranchError, Unavailable

__all__ = ["FileCache", "Verify"]

_log = logging.getLogger(__name__)

Verify = Callable[[Path, Callable[[int], None]], None]
"""Reads every byte of a file, telling how many are done; raises where one is not right."""


class FileCache:
    """A folder of files of one kind. For several processes, each with a cache of its own.

    Args:
        folder: made on first use, mode 0700.
        limit_bytes: what `prune` keeps at most, beside what is in use.
        suffix: of the files.
        verify: checks one.
    """

    def __init__(self, folder: Path, limit_bytes: int, suffix: str, verify: Verify) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._suffix = suffix
        self._verify = verify

    def get(
        self,
        key: str,
        write: Callable[[Path, str], object],
        on_bytes: Callable[[int], None] = lambda done: None,
    ) -> Path:
        """Return the file of `key`, made by `write` where it is not there or damaged.

        Every byte of a file that was there is read and compared with its checksums.

        Args:
            key: everything that the content depends on, in words of any kind.
            write: makes the file of that name in that folder, whole or not at all.
            on_bytes: told how much of a file that was there has been read.

        Raises:
            AnabranchError: what `write` raises.
            Unavailable: the cache folder cannot be written; says why.
        """
        name = name_of(key) + self._suffix
        place = self._folder / name
        was_there = place.exists()
        if was_there and self._is_sound(place, on_bytes):
            mark_used(place)
            return place
        with _writing():
            if was_there:
                place.unlink(missing_ok=True)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                write(self._folder, name)
            except OSError:
                if not self._is_sound(place, on_bytes):  # else another process was faster
                    raise
        return place

    def prune(self, in_use: Collection[Path], since: float | None = None) -> None:
        """Remove what was used longest ago until the limit is kept; half-made files too.

        What processes have mapped stays readable for them, and what another server is making stays.

        Args:
            in_use: what `get` returned and processes may still be told of.
            since: what was made or used at that time or later stays, seconds since 1970; another
                process may be about to tell of it.
        """
        kept_bytes = 0
        for place in newest_first(self._folder, Path.is_file):
            if place in in_use or is_since(place, since):
                continue
            if place.suffix == self._suffix and not place.name.startswith("."):
                kept_bytes += _size(place)
                if kept_bytes <= self._limit_bytes:
                    continue
                _log.debug("cleared %s", place.name, extra={"event": "cache_cleared"})
            elif is_locked(place):
                continue
            with suppress(OSError):
                place.unlink()

    def _is_sound(self, place: Path, on_bytes: Callable[[int], None]) -> bool:
        if not place.is_file():
            return False
        try:
            self._verify(place, on_bytes)
        except (AnabranchError, OSError) as error:
            _log.warning("a cached file is made anew: %s", error, extra={"event": "cache_damaged"})
            return False
        return True


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"cache folder: {error.strerror or error}") from None


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
