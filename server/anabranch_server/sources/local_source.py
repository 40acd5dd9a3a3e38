"""A repository on this machine: what is published is seen at once, where the kernel tells of it."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from anabranch_server.sources.folder_watches import FolderWatches
from anabranch_server.sources.inotify import Inotify

__all__ = ["LocalSource"]

_log = logging.getLogger(__name__)

_SILENT: Final = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "gpfs", "afs", "glusterfs")
"""File systems whose other machines change files without this one's kernel being told."""


class LocalSource:
    """Tells of changes as the kernel does. Belongs to the event loop.

    The watcher looks every `poll_s` all the same: what cannot be watched is seen then.

    Args:
        root: the repository.
        only: names of the models to watch; None is all.
        on_change: called when a look is worth while.
    """

    def __init__(
        self, root: Path, only: Collection[str] | None, on_change: Callable[[], None]
    ) -> None:
        self._root = root
        self._only = only
        self._on_change = on_change

    async def begin(self) -> None:
        """See `Source`: a folder can be looked at any time."""

    async def refresh(self) -> None:
        """See `Source`: it is as it is."""

    async def run(self) -> None:
        """See `Source`; returns where nothing can be watched."""
        if (kind := await asyncio.to_thread(file_system, self._root)).startswith(_SILENT):
            _polling(f"{kind} does not tell of what other machines do")
            return
        try:
            inotify = Inotify()
        except OSError as error:
            _polling(f"{error.strerror}")
            return
        loop = asyncio.get_running_loop()
        watches = FolderWatches(
            inotify, str(self._root), self._only, lambda: _polling("no more inotify watches")
        )
        readable = asyncio.Event()
        try:
            await asyncio.to_thread(watches.begin)
            self._on_change()  # what came before the watches were set
            loop.add_reader(inotify.fileno(), readable.set)
            while True:
                await readable.wait()
                readable.clear()
                if watches.take(inotify.read()):
                    self._on_change()
        finally:
            loop.remove_reader(inotify.fileno())
            inotify.close()


def file_system(path: Path) -> str:
    """Return the kind of file system that a folder lies on; "" where that is not known."""
    with suppress(OSError, ValueError):
        device = os.stat(path).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                fields = line.split()
                if fields[2] == wanted:
                    return fields[fields.index("-") + 1]
    return ""


def _polling(reason: str) -> None:
    _log.warning(
        "changes are seen by looking every watch.poll_s alone: %s",
        reason,
        extra={"event": "inotify_unavailable"},
    )
