"""Which folders of a repository are watched, so that what is published is seen at once.

Watched are the repository, models, versions, their `deltas/`, and the newest deltas that are not
published yet; never those that are, of which there may be 86,400. A folder is looked into after
its watch is set: what came in between is seen, too.
"""

import errno
import os
import re
from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Final, NamedTuple

from anabranch_server.sources.inotify import IGNORED, OVERFLOW, Event, Inotify
from anabranch_wire.delta import FILE_NAME as DELTA
from anabranch_wire.errors import InvalidInput
from anabranch_wire.manifest import FILE_NAME as MANIFEST
from anabranch_wire.names import check_model_name, is_version

__all__ = ["FolderWatches"]

_DELTAS: Final = "deltas"
_NUMBER: Final = re.compile(r"[0-9]{8}")
_OPEN: Final = 8
"""Unpublished deltas of a version that are watched: dead attempts leave some for ever."""
_FULL: Final = frozenset({errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class _Level(Enum):
    REPOSITORY = auto()
    MODEL = auto()
    VERSION = auto()
    DELTAS = auto()
    DELTA = auto()


class _Watched(NamedTuple):
    level: _Level
    path: str


_FILES: Final = {
    _Level.REPOSITORY: frozenset[str](),
    _Level.MODEL: frozenset({"serving.yaml", "model.yaml"}),
    _Level.VERSION: frozenset({MANIFEST}),
    _Level.DELTAS: frozenset[str](),
    _Level.DELTA: frozenset({DELTA}),
}
"""Files that mean something at each level."""
_BELOW: Final = {
    _Level.REPOSITORY: _Level.MODEL,
    _Level.MODEL: _Level.VERSION,
    _Level.VERSION: _Level.DELTAS,
    _Level.DELTAS: _Level.DELTA,
}


class FolderWatches:
    """The watches of one repository. Used by one thread at a time.

    Args:
        inotify: gives the watches.
        root: the repository.
        only: names of the models to watch; None is all.
        on_exhausted: called once, when there are no more watches to be had.
    """

    def __init__(
        self,
        inotify: Inotify,
        root: str,
        only: Collection[str] | None,
        on_exhausted: Callable[[], None],
    ) -> None:
        self._inotify = inotify
        self._root = root
        self._only = None if only is None else frozenset(only)
        self._on_exhausted = on_exhausted
        self._is_exhausted = False
        self._watched: dict[int, _Watched] = {}
        self._open: dict[str, dict[str, int]] = {}

    @property
    def paths(self) -> set[str]:
        """The folders that are watched."""
        return {watched.path for watched in self._watched.values()}

    def begin(self) -> None:
        """Watch all that is there. Blocks for as long as the file system does."""
        self._enter(_Watched(_Level.REPOSITORY, self._root))

    def take(self, events: Collection[Event]) -> bool:
        """Follow what has happened; returns whether it is worth a look at the repository."""
        is_news = False
        for event in events:
            if event.mask & OVERFLOW:
                self.begin()
                is_news = True
            elif event.mask & IGNORED:  # also of watches that were ended here
                is_news |= event.watch in self._watched
                self._forget(event.watch)
            elif (watched := self._watched.get(event.watch)) is not None:
                is_news |= self._happened(event.watch, watched, event.name)
        return is_news

    def _happened(self, watch: int, watched: _Watched, name: str) -> bool:
        if name in _FILES[watched.level]:
            if watched.level is _Level.DELTA:
                self._inotify.remove(watch)
                self._forget(watch)
            return True
        below = self._below(watched.level, name)
        if below is None:
            return False
        self._enter(_Watched(below, os.path.join(watched.path, name)))
        return True

    def _enter(self, watched: _Watched) -> None:
        """Watch a folder and what is in it; nothing where it has gone, or is a file."""
        level, path = watched
        if level is _Level.DELTA and os.path.isfile(os.path.join(path, DELTA)):
            return
        try:
            watch = self._inotify.add(path)
        except OSError as error:
            if error.errno in _FULL and not self._is_exhausted:
                self._is_exhausted = True
                self._on_exhausted()
            return
        self._watched[watch] = watched
        if level is _Level.DELTA:
            if os.path.isfile(os.path.join(path, DELTA)):
                self._inotify.remove(watch)
                self._forget(watch)
            else:
                self._bound(path, watch)
            return
        names = [name for name in _listed(path) if self._below(level, name) is not None]
        if level is _Level.DELTAS:
            names = sorted(names)[-_OPEN:]
        for name in names:
            self._enter(_Watched(_BELOW[level], os.path.join(path, name)))

    def _below(self, level: _Level, name: str) -> _Level | None:
        """Level of a folder of that name; None where it means nothing."""
        match level:
            case _Level.REPOSITORY:
                fits = self._wants(name)
            case _Level.MODEL:
                fits = is_version(name)
            case _Level.VERSION:
                fits = name == _DELTAS
            case _Level.DELTAS:
                fits = _NUMBER.fullmatch(name) is not None
            case _Level.DELTA:
                fits = False
        return _BELOW[level] if fits else None

    def _wants(self, name: str) -> bool:
        try:
            check_model_name(name)
        except InvalidInput:
            return False
        return self._only is None or name in self._only

    def _bound(self, path: str, watch: int) -> None:
        """Watch no more than a few unpublished deltas of a version."""
        above = self._open.setdefault(os.path.dirname(path), {})
        above[path] = watch
        while len(above) > _OPEN:
            oldest = min(above)
            self._inotify.remove(above[oldest])
            self._forget(above[oldest])

    def _forget(self, watch: int) -> None:
        watched = self._watched.pop(watch, None)
        if watched is not None and watched.level is _Level.DELTA:
            above = self._open.get(os.path.dirname(watched.path), {})
            above.pop(watched.path, None)
            if not above:
                self._open.pop(os.path.dirname(watched.path), None)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
