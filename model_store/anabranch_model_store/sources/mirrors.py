"""Keeps the skeleton of a remote repository like the repository, with few requests.

A look lists the models and each model's folder, and asks for the next delta of the newest version
of each and of one other version. Versions and deltas are listed whole at the first look and then
now and then: that finds what was taken away, and what was published beyond a gap.
"""

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch_model_store.sources.remote_folders import Entry, RemoteFolder
from anabranch_model_store.sources.skeletons import Skeleton
from anabranch_wire import delta, manifest
from anabranch_wire.errors import InvalidInput, TooLarge, Unavailable
from anabranch_wire.names import check_model_name, is_version

__all__ = ["Mirror"]

_BESIDE: Final[tuple[str, ...]] = ("serving.yaml", "model.yaml")
_MAX_BYTES: Final = 64 * 1024 * 1024
_RELIST_S: Final = 60.0
_SHARE: Final = 20
"""A whole listing takes at most one part in so many of the time."""
_WAITING: Final = 4
"""Unpublished versions of a model that a look asks for: a dead publisher leaves one for ever."""
_AHEAD: Final = 64
"""Deltas that are read at a time where there are many."""


@dataclass(slots=True)
class _Version:
    deltas: set[int]
    listed_s: float | None = None
    took_s: float = 0.0

    @property
    def next(self) -> int:
        return max(self.deltas, default=0) + 1


@dataclass(slots=True)
class _Model:
    tags: dict[str, str] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    versions: dict[int, _Version] = field(default_factory=dict)
    turn: int = 0


class Mirror:
    """Mirrors one repository. Belongs to one thread at a time.

    Args:
        remote: the repository.
        root: folder of the skeleton; made where it is missing, and taken up where it is not.
        only: names of the models to mirror; None is all.
        now_s: a monotonic clock.

    Raises:
        Unavailable: the folder cannot be written.
    """

    def __init__(
        self,
        remote: RemoteFolder,
        root: Path,
        only: Collection[str] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._remote = remote
        self._skeleton = Skeleton(root)
        self._only = None if only is None else frozenset(only)
        self._now_s = now_s
        self._models: dict[str, _Model] = {}
        self._is_mine = False
        self._read()

    def close(self) -> None:
        """Leave the skeleton to others."""
        self._skeleton.close()
        self._is_mine = False

    @property
    def holds_models(self) -> bool:
        """Whether the skeleton has a model: a server can start with it."""
        return bool(self._models)

    def look(self) -> bool:
        """Make the skeleton like the repository; returns whether anything changed.

        What was done before something fails stays done. Where another server with the same cache
        folder mirrors the repository, nothing is done here, until that one is gone.

        Raises:
            Unavailable: the store or the cache folder is not to be had, or there is nothing any
                more where models were: a bucket that has gone is no order to serve nothing.
        """
        if not self._is_mine:
            self._is_mine = self._skeleton.begin()
            before = set(self._models)
            self._read()
            if not self._is_mine:
                return before != set(self._models)
        listed = self._remote.names("")
        names = [name for name, entry in listed.items() if entry.is_folder and self._wants(name)]
        if not listed:
            raise Unavailable(f"{self._remote.url}: nothing lies there")
        if not names and self._models:
            raise Unavailable(f"{self._remote.url}: no model lies there any more")
        changed = False
        for name in [name for name in self._models if name not in names]:
            self._skeleton.remove(name)
            del self._models[name]
            changed = True
        for name in sorted(names):
            changed |= self._look_at(name)
        return changed

    def _read(self) -> None:
        """Take up what the skeleton has."""
        self._models = {
            name: _Model(versions={n: _Version(deltas) for n, deltas in versions.items()})
            for name, versions in self._skeleton.models().items()
        }

    def _wants(self, name: str) -> bool:
        try:
            check_model_name(name)
        except InvalidInput:
            return False
        return self._only is None or name in self._only

    def _look_at(self, name: str) -> bool:
        model = self._models.get(name) or _Model()
        listed = self._remote.names(name)
        if not listed and name in self._models:  # it went between two listings
            return False
        texts = {file: self._text(model, name, file, listed) for file in _BESIDE if file in listed}
        model.tags = {file: listed[file].tag for file in texts}
        model.texts = texts
        changed = self._skeleton.put_model(name, texts)
        self._models[name] = model
        numbers = {int(one) for one, entry in listed.items() if entry.is_folder and is_version(one)}
        for number in model.versions.keys() - numbers:
            self._skeleton.remove(name, number)
            del model.versions[number]
            changed = True
        for number in sorted(numbers - model.versions.keys(), reverse=True)[:_WAITING]:
            changed |= self._take(name, model, number)
        return self._look_at_deltas(name, model) or changed

    def _text(self, model: _Model, name: str, file: str, listed: dict[str, Entry]) -> bytes:
        tag = listed[file].tag
        if tag and model.tags.get(file) == tag:
            return model.texts[file]
        return self._remote.read(f"{name}/{file}", _MAX_BYTES) or b""

    # --- versions -------------------------------------------------------------------------------

    def _take(self, name: str, model: _Model, number: int) -> bool:
        """Take a version that is new, if it is published; with all its deltas."""
        place = f"{name}/{number}"
        text = self._document(f"{place}/{manifest.FILE_NAME}")
        if text is None:
            return False
        version = _Version(set())
        deltas = self._listed_deltas(place, version)
        found = self._deltas(place, sorted(deltas))
        self._skeleton.put_version(name, number, text, found)
        version.deltas = set(found)
        model.versions[number] = version
        return True

    def _look_at_deltas(self, name: str, model: _Model) -> bool:
        changed = False
        numbers = sorted(model.versions, reverse=True)
        turn, others = model.turn, numbers[1:]
        model.turn += 1
        for number in [*numbers[:1], *([others[turn % len(others)]] if others else [])]:
            version = model.versions[number]
            if self._is_due(version):
                changed |= self._relist(name, number, version)
            else:
                changed |= self._probe(name, number, version)
        return changed

    def _is_due(self, version: _Version) -> bool:
        wait_s = max(_RELIST_S, _SHARE * version.took_s)
        return version.listed_s is None or self._now_s() - version.listed_s >= wait_s

    # --- deltas ---------------------------------------------------------------------------------

    def _probe(self, name: str, number: int, version: _Version) -> bool:
        """Ask for the next deltas, one by one at first: mostly there is none."""
        ahead, changed = 1, False
        while True:
            wanted = range(version.next, version.next + ahead)
            found = self._deltas(f"{name}/{number}", list(wanted))
            for one in wanted:
                if one not in found:
                    return changed
                self._skeleton.put_delta(name, number, one, found[one])
                version.deltas.add(one)
                changed = True
            ahead = min(2 * ahead, _AHEAD)

    def _relist(self, name: str, number: int, version: _Version) -> bool:
        """Compare with all that is there."""
        place = f"{name}/{number}"
        text = self._document(f"{place}/{manifest.FILE_NAME}")
        if text is None:  # it is being taken away
            self._skeleton.remove(name, number)
            del self._models[name].versions[number]
            return True
        if text != self._skeleton.read(f"{place}/{manifest.FILE_NAME}"):  # published anew
            return self._take(name, self._models[name], number)
        listed = self._listed_deltas(place, version)
        gone = version.deltas - listed
        for one in gone:
            self._skeleton.remove(name, number, one)
            version.deltas.discard(one)
        missing = sorted(listed - version.deltas)
        changed = bool(gone)
        for begin in range(0, len(missing), _AHEAD):
            for one, data in self._deltas(place, missing[begin : begin + _AHEAD]).items():
                self._skeleton.put_delta(name, number, one, data)
                version.deltas.add(one)
                changed = True
        return changed

    def _listed_deltas(self, place: str, version: _Version) -> set[int]:
        """Numbers of deltas that are there, published or not."""
        begin_s = self._now_s()
        names = self._remote.names(f"{place}/deltas")
        version.listed_s = self._now_s()
        version.took_s = version.listed_s - begin_s
        return {
            int(name)
            for name, entry in names.items()
            if entry.is_folder and len(name) == 8 and name.isascii() and name.isdigit()
        } - {0}

    def _deltas(self, place: str, numbers: list[int]) -> dict[int, bytes]:
        """Return those that are published, by number, rising."""
        paths = {f"{place}/deltas/{one:08}/{delta.FILE_NAME}": one for one in numbers}
        found = self._remote.read_many(list(paths), _MAX_BYTES)
        return {paths[path]: data for path, data in found.items() if _is_whole(data)}

    def _document(self, path: str) -> bytes | None:
        try:
            data = self._remote.read(path, _MAX_BYTES)
        except TooLarge:  # nobody would read it
            return None
        return data if data is not None and _is_whole(data) else None


def _is_whole(data: bytes) -> bool:
    """Whether a document is there to its end: not every store shows files only when they are."""
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
