"""What tells a file or folder from a changed one, at the cost of a `stat`."""

import os
import stat
from typing import Final, NamedTuple

__all__ = ["FileMark", "has_gone", "mark"]

_FRESH_S: Final = 2.0
"""Clocks of file systems are coarse: what changed this recently may change again unseen."""


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


def mark(path: str) -> FileMark | None:
    """Return what tells a file or folder from a changed one; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileMark(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def has_gone(path: str) -> bool:
    """Whether there is no such folder any more; one that cannot be seen now has not gone."""
    try:
        return not stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
