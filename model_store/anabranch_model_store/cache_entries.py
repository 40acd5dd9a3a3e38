"""What the caches of the cache folder have in common: names, the order of use, files that stay."""

import fcntl
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["is_locked", "is_since", "mark_used", "name_of", "newest_first", "sync"]


def name_of(key: str) -> str:
    """Return the name of what is kept under a key, in words of any kind."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def mark_used(entry: Path) -> None:
    """Note that an entry is used now; what was used last is cleared last."""
    with suppress(OSError):
        os.utime(entry)


def is_since(entry: Path, since: float | None) -> bool:
    """Whether an entry was made or used at a time or later, seconds since 1970; None is never.

    One that is gone meanwhile was.
    """
    try:
        return since is not None and entry.stat().st_mtime >= since
    except OSError:
        return True


def is_locked(path: Path) -> bool:
    """Whether somebody is writing a half-made file: whoever does holds a lock on it."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def newest_first(folder: Path, is_entry: Callable[[Path], bool]) -> list[Path]:
    """Return the entries of a folder, what was used last first; none where there is no folder."""
    with suppress(OSError):
        return sorted(filter(is_entry, folder.iterdir()), key=_used, reverse=True)
    return []


def sync(path: Path) -> None:
    """Make sure that a file or a folder is on the disk.

    Raises:
        OSError: it cannot be opened or written.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _used(entry: Path) -> float:
    with suppress(OSError):
        return entry.stat().st_mtime
    return 0.0
