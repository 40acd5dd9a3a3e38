"""What lies in the repository now: immutable looks at it, taken again and again.

A look opens no file but serving.yaml. What has not changed since the look before costs one `stat` a
file, and is the same object in both looks.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from anabranch_model_store.containment import read_inside
from anabranch_model_store.repository import (
    Ignored,
    ModelFolder,
    find_model,
    report_ignored,
    visible_names,
)
from anabranch_model_store.yaml_text import MAX_BYTES
from anabranch_server.supervisor.watching_files import SeenVersion, VersionWatch
from anabranch_server.supervisor.watching_marks import FileMark, mark
from anabranch_wire.errors import AnabranchError, InvalidInput, NotFound, Unavailable

__all__ = ["Look", "Scanner", "SeenModel", "SeenVersion", "Watcher"]

_log = logging.getLogger(__name__)

_SERVING: Final = "serving.yaml"
_MEANING: Final = "model.yaml"


@dataclass(frozen=True, slots=True)
class SeenModel:
    """A model as it lies in the repository.

    Attributes:
        name: model name.
        path: real path of its folder.
        serving_yaml: text of the file; empty where there is none.
        fault: why serving.yaml cannot be read.
        settings: fingerprint of serving.yaml and of the model's own model.yaml.
        versions: complete versions by number, ascending.
        changing: versions that are there, but not complete.
    """

    name: str
    path: Path
    serving_yaml: str
    fault: AnabranchError | None
    settings: str
    versions: Mapping[int, SeenVersion]
    changing: frozenset[int]


@dataclass(frozen=True, slots=True)
class Look:
    """The repository at one moment.

    Attributes:
        models: by name, in the order of names.
    """

    models: Mapping[str, SeenModel]


class Scanner:
    """Looks at a repository. Owned by one thread at a time.

    Args:
        root: the repository.
        only: names of the models to look at; None is all.
        settle_s: how long a version without a manifest must have been still.
    """

    def __init__(self, root: Path, only: Collection[str] | None, settle_s: float) -> None:
        self._root = root
        self._only = None if only is None else frozenset(only)
        self._settle_s = settle_s
        self._models: dict[str, _ModelWatch] = {}
        self._ignored: frozenset[Ignored] = frozenset()
        self._place: tuple[int, int] | None = None
        self._is_first = True

    def look(self, now_s: float, wall_s: float) -> Look:
        """Return what lies there. Blocks for as long as the file system does.

        Args:
            now_s: monotonic clock.
            wall_s: seconds since 1970, the clock of modification times.

        Raises:
            NotFound: the repository is no folder.
            Unavailable: it cannot be read, or another, empty folder lies in its place.
        """
        moment = _Moment(now_s, wall_s, self._settle_s, self._is_first)
        names = visible_names(self._root)
        self._check_place(names)
        ignored: set[Ignored] = set()
        models: dict[str, SeenModel] = {}
        watches: dict[str, _ModelWatch] = {}
        for name in names:
            if self._only is not None and name not in self._only:
                continue
            watch = self._models.get(name) or _ModelWatch(self._root, name)
            seen = watch.look(moment, ignored)
            if seen is not None:
                models[seen.name] = seen
            watches[name] = watch
        if _place(self._root) != self._place:  # then what seems to have gone has not
            raise Unavailable("the repository was replaced while it was looked at")
        self._models = watches
        report_ignored(frozenset(ignored), self._ignored)
        self._ignored = frozenset(ignored)
        self._is_first = False
        return Look(MappingProxyType(models))

    def _check_place(self, names: list[str]) -> None:
        """Refuse an empty folder that is not the one that had models: a mount that has gone."""
        place = _place(self._root)
        if self._place not in (None, place) and not names and self._models:
            raise Unavailable("another folder without models lies in the repository's place")
        self._place = place


def _place(root: Path) -> tuple[int, int] | None:
    """Return what tells a folder from another one at its path; None where there is none."""
    try:
        status = root.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@dataclass(frozen=True, slots=True)
class _Moment:
    now_s: float
    wall_s: float
    settle_s: float
    is_first: bool


class _ModelWatch:
    """What is known of one name in the repository."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._name = name
        self._path = os.path.join(root, name)
        self._mark: FileMark | None = None
        self._folder: ModelFolder | None = None
        self._ignored: frozenset[Ignored] = frozenset()
        self._versions: dict[int, VersionWatch] = {}
        self._marks: tuple[FileMark | None, ...] | None = None
        self._text = ""
        self._fault: AnabranchError | None = None
        self._settings = ""
        self._seen: SeenModel | None = None

    def look(self, moment: _Moment, ignored: set[Ignored]) -> SeenModel | None:
        """Return the model; None where the name is none."""
        found = mark(self._path)
        if found is None or found != self._mark:
            is_known = self._find() and found is not None and not found.is_fresh(moment.wall_s)
            self._mark = found if is_known else None
        ignored |= self._ignored
        folder = self._folder
        if folder is None:
            self._seen = None
            return None
        self._read_settings(folder, moment.wall_s)
        versions: dict[int, SeenVersion] = {}
        changing: set[int] = set()
        for number, watch in self._versions.items():
            seen = watch.look(moment.now_s, moment.wall_s, at_start=moment.is_first)
            if seen is None:
                continue
            ignored |= watch.ignored
            if seen.published or watch.is_settled(moment.now_s, moment.settle_s):
                versions[number] = seen
            else:
                changing.add(number)
        return self._same_or_new(folder, versions, frozenset(changing))

    def _find(self) -> bool:
        """List the folder anew; returns whether that could be done."""
        ignored: set[Ignored] = set()
        try:
            self._folder = folder = find_model(self._root, self._name, ignored)
        except Unavailable as error:
            # What cannot be read has not gone: what was known of it stays, until it can be again.
            self._ignored = frozenset({Ignored(self._name, error.message)})
            return False
        self._ignored = frozenset(ignored)
        if folder is None:
            self._versions = {}
            return True
        known = self._versions
        self._versions = {
            number: (
                known[number]
                if number in known and known[number].folder == version.path
                else VersionWatch(
                    folder.name, number, version.path, os.path.join(self._path, str(number))
                )
            )
            for number, version in folder.versions.items()
        }
        return True

    def _read_settings(self, folder: ModelFolder, wall_s: float) -> None:
        marks = tuple(mark(os.path.join(self._path, name)) for name in (_SERVING, _MEANING))
        if marks == self._marks:
            return
        try:
            self._text = read_inside(folder.path, _SERVING, MAX_BYTES).decode()
            self._fault = None
        except NotFound:
            self._text, self._fault = "", None
        except AnabranchError as error:
            self._text, self._fault = "", error
        except UnicodeDecodeError as error:
            self._text, self._fault = "", InvalidInput(f"{_SERVING}: not UTF-8: {error}")
        fault = "" if self._fault is None else self._fault.message
        meaning = "" if marks[1] is None else marks[1].fingerprint
        told = f"{self._text}\0{fault}\0{meaning}"
        self._settings = hashlib.sha256(told.encode()).hexdigest()
        is_fresh = any(one is not None and one.is_fresh(wall_s) for one in marks)
        self._marks = None if is_fresh else marks

    def _same_or_new(
        self, folder: ModelFolder, versions: dict[int, SeenVersion], changing: frozenset[int]
    ) -> SeenModel:
        seen = self._seen
        if (
            seen is None
            or seen.path != folder.path
            or seen.settings != self._settings
            or seen.changing != changing
            or seen.versions != versions
        ):
            seen = self._seen = SeenModel(
                folder.name,
                folder.path,
                self._text,
                self._fault,
                self._settings,
                MappingProxyType(versions),
                changing,
            )
        return seen


class Watcher:
    """Looks every `poll_s`, and at once when poked. Belongs to the event loop; threads look.

    Whatever learns of changes sooner than a poll, as inotify does, calls `poke`.

    Args:
        scanner: what looks; owned by the watcher from now on.
        poll_s: time between looks.
        on_look: told every look, in their order.
        wall_s: the clock of modification times, seconds since 1970.
    """

    def __init__(
        self,
        scanner: Scanner,
        poll_s: float,
        on_look: Callable[[Look], None],
        wall_s: Callable[[], float],
    ) -> None:
        self._scanner = scanner
        self._poll_s = poll_s
        self._on_look = on_look
        self._wall_s = wall_s
        self._turn = asyncio.Lock()
        self._poked = asyncio.Event()
        self._fault = ""

    def poke(self) -> None:
        """Look soon."""
        self._poked.set()

    async def look(self) -> Look:
        """Look now, tell it, and return it. What happened before the call is in it.

        Who cancels is let go at once; a look that has begun goes on to its end, since its thread
        does, and nobody else may have the scanner meanwhile.

        Raises:
            NotFound, Unavailable: as `Scanner.look`.
        """
        return await asyncio.shield(asyncio.ensure_future(self._look()))

    async def _look(self) -> Look:
        async with self._turn:
            now_s = asyncio.get_running_loop().time()
            try:
                look = await asyncio.to_thread(self._scanner.look, now_s, self._wall_s())
            except OSError as error:
                raise Unavailable(f"the repository cannot be read: {error.strerror}") from None
            if self._fault:
                self._fault = ""
                _log.info(
                    "the repository can be read again", extra={"event": "repository_readable"}
                )
            self._on_look(look)
            return look

    async def run(self) -> None:
        """Look until cancelled; what cannot be read is said once and looked at again."""
        while True:
            self._poked.clear()
            try:
                await self.look()
            except AnabranchError as error:
                if error.message != self._fault:
                    self._fault = error.message
                    _log.error(
                        "%s; what is served stays",
                        error.message,
                        extra={"event": "repository_unreadable"},
                    )
            except Exception:  # the edge: whatever a file system does, the next look is taken
                _log.exception("a look failed", extra={"event": "internal_error"})
            try:
                async with asyncio.timeout(self._poll_s):
                    await self._poked.wait()
            except TimeoutError:
                pass
