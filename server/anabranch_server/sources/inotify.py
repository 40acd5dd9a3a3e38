"""The kernel's inotify, as much of it as is needed to be told of new files. Linux only.

There is no package between: those that wrap it read whole trees, run threads of their own, or look
for the C library with a child process, and this is three calls and a struct.
"""

import ctypes
import errno
import os
import struct
from typing import Final, NamedTuple

__all__ = ["CHANGES", "IGNORED", "IS_FOLDER", "OVERFLOW", "Event", "Inotify"]

_CLOSE_WRITE: Final = 0x8
_MOVED_FROM: Final = 0x40
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_ONLY_FOLDERS: Final = 0x01000000
CHANGES: Final = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLY_FOLDERS
"""What a folder is watched for: names that come or go, files that were written."""
OVERFLOW: Final = 0x4000
"""More happened than the kernel kept."""
IGNORED: Final = 0x8000
"""A watch has ended, since its folder has gone."""
IS_FOLDER: Final = 0x40000000

_EVENT: Final = struct.Struct("iIII")
_BUFFER: Final = 1 << 16


class Event(NamedTuple):
    """Something happened in a watched folder.

    Attributes:
        watch: number of the watch; -1 for an overflow.
        mask: what.
        name: of what lies in the folder; "" where it is about the folder itself.
    """

    watch: int
    mask: int
    name: str


class Inotify:
    """One queue of events; its descriptor is readable when there are some. Used by one thread.

    Raises:
        OSError: this user has too many of them, or the kernel knows none.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        try:
            init = self._libc.inotify_init1
        except AttributeError:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
        self._fd = self._checked(init(os.O_CLOEXEC | os.O_NONBLOCK), "inotify")

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def add(self, folder: str) -> int:
        """Watch a folder; returns the number of the watch, the same for the same folder.

        Raises:
            OSError: it is not there, is no folder, or this user has too many watches (`ENOSPC`).
        """
        found = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), CHANGES)
        return self._checked(found, folder)

    def remove(self, watch: int) -> None:
        """End a watch; one that has ended stays so."""
        self._libc.inotify_rm_watch(self._fd, watch)

    def read(self) -> list[Event]:
        """Return what has happened; nothing where nothing has. Does not wait."""
        try:
            data = os.read(self._fd, _BUFFER)
        except BlockingIOError:
            return []
        events = []
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            name = data[at - length : at].rstrip(b"\0")
            events.append(Event(watch, mask, os.fsdecode(name)))
        return events

    def close(self) -> None:
        """End every watch."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _checked(self, result: int, what: str) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), what)
        return result
