"""Keeps the skeleton of a remote repository like the repository, with few requests.

A look lists the models and each model's folder, and asks for the next delta of the newest version
of each and of one other version. Versions and deltas are listed whole at the first look and then
now and then: that finds what was taken away, what was published beyond a gap, and, few at a time,
which deltas were published anew. What cannot be read keeps back nothing else. Where the skeleton
has lost something, it is hidden until the end of the look that brings it back.
"""

import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch_model_store.sources.comparisons import Comparisons, Turn
from anabranch_model_store.sources.documents import RemoteDocuments, Unread, is_whole
from anabranch_model_store.sources.remote_folders import Entry, RemoteFolder
from anabranch_model_store.sources.skeletons import Skeleton
from anabranch_model_store.yaml_text import MAX_BYTES
from anabranch_wire import delta, manifest
from anabranch_wire.errors import InvalidInput, TooLarge, Unavailable
from anabranch_wire.names import check_model_name, is_version

__all__ = ["Mirror"]

_BESIDE: Final[tuple[str, ...]] = ("serving.yaml", "model.yaml")
_MAX_MANIFEST: Final = 64 * 1024 * 1024
_MAX_DELTA: Final = 16 * 1024 * 1024
_RELIST_S: Final = 60.0
_SHARE: Final = 20
"""A whole listing takes at most one part in so many of the time."""
_WAITING: Final = 4
"""Unpublished versions of a model that a look asks for: a dead publisher leaves one for ever."""
_AHEAD: Final = 64
"""Deltas that are read at a time where there are many."""
_AGAIN: Final = 4
"""Deltas that were refused which a look asks for again."""
_FEWEST: Final = 2
"""Refusals that mean that the store is down; one may be of the only document that is asked for."""


@dataclass(slots=True)
class _Version:
    deltas: set[int]
    unread: set[int] = field(default_factory=set)
    unpublished: set[int] = field(default_factory=set)
    again: Turn = field(default_factory=Turn)
    compared: Comparisons = field(default_factory=lambda: Comparisons(is_start=False))
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
        self._documents = RemoteDocuments(remote)
        self._skeleton = Skeleton(root)
        self._only = None if only is None else frozenset(only)
        self._now_s = now_s
        self._models: dict[str, _Model] = {}
        self._lost: dict[str, set[int]] = {}
        self._is_mine = False
        self._read()

    def close(self) -> None:
        """Leave the skeleton to others."""
        self._skeleton.close()
        self._is_mine = False

    @property
    def holds_models(self) -> bool:
        """Whether the skeleton has a model: a server can start with it."""
        return bool(self._models) and self._skeleton.is_shown

    @property
    def faults(self) -> Mapping[str, str]:
        """What could not be read or listed when it was last asked for, by path, and why."""
        return self._documents.faults

    def look(self) -> bool:
        """Make the skeleton like the repository; returns whether anything changed.

        What was done before something fails stays done. Where another server with the same cache
        folder mirrors the repository, nothing is done here, until that one is gone.

        Raises:
            Unavailable: the store or the cache folder is not to be had, or there is nothing any
                more where models were: a bucket that has gone is no order to serve nothing.
        """
        if self._is_mine and not self._skeleton.is_there():
            self.close()
        known = {name: set(model.versions) for name, model in self._models.items()}
        if not self._is_mine:
            self._is_mine = self._skeleton.begin()
            self._read()
            if not self._is_mine:
                if not self._skeleton.is_shown:
                    raise Unavailable("cache folder: another server is filling it")
                return known.keys() != self._models.keys()
            if not self._models:
                self._skeleton.hide()
        self._lose(known)
        is_shown = self._skeleton.is_shown
        self._documents.begin()
        listed = self._remote.names("")
        names = [name for name, entry in listed.items() if entry.is_folder and self._wants(name)]
        if not listed:
            raise Unavailable(f"{self._remote.url}: nothing lies there")
        if not names and (self._models or self._lost):
            raise Unavailable(f"{self._remote.url}: no model lies there any more")
        changed = False
        for name in [name for name in self._models if name not in names]:
            self._remove(name)
            del self._models[name]
            changed = True
        for name in sorted(names):
            with suppress(Unread):
                changed |= self._look_at(name)
        is_filled = any(model.versions for model in self._models.values())
        self._documents.end(_FEWEST if is_filled else 1)
        self._skeleton.show()
        self._lost.clear()
        return changed or not is_shown

    def _lose(self, known: Mapping[str, set[int]]) -> None:
        """Note what is no longer there of what was: somebody emptied the cache folder."""
        for name, versions in known.items():
            lost = {one for one in versions if not self._skeleton.has(name, one)}
            is_there = self._skeleton.has(name)
            if is_there and not lost:
                continue
            self._lost.setdefault(name, set()).update(lost)
            model = self._models.get(name)
            if model is not None and is_there:
                model.versions = {n: one for n, one in model.versions.items() if n not in lost}
            elif model is not None:
                del self._models[name]
        if self._lost:
            self._skeleton.hide()

    def _read(self) -> None:
        """Take up what the skeleton has."""
        self._models = {
            name: _Model(
                versions={
                    n: _Version(deltas, compared=Comparisons(is_start=True))
                    for n, deltas in versions.items()
                }
            )
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
        listed = self._documents.names(name)
        if not listed and name in self._models:  # it went between two listings
            return False
        texts, tags = {}, {}
        for file in _BESIDE:
            if file in listed:
                data, tags[file] = self._text(model, name, file, listed[file])
                if data is not None:
                    texts[file] = data
        model.texts, model.tags = texts, tags
        changed = self._skeleton.put_model(name, texts)
        self._models[name] = model
        numbers = {int(one) for one, entry in listed.items() if entry.is_folder and is_version(one)}
        for number in model.versions.keys() - numbers:
            self._remove(name, number)
            del model.versions[number]
            changed = True
        new = sorted(numbers - model.versions.keys(), reverse=True)
        lost = self._lost.get(name, set())
        for number in [*new[:_WAITING], *(one for one in new[_WAITING:] if one in lost)]:
            with suppress(Unread):
                changed |= self._take(name, model, number)
        return self._look_at_deltas(name, model) or changed

    def _text(self, model: _Model, name: str, file: str, entry: Entry) -> tuple[bytes | None, str]:
        """Return a file beside the versions, and its tag.

        Where it cannot be read whole that is what was known of it, and "": it is read again.

        Raises:
            Unread: it cannot be read whole, and the model is new: it may not be served so.
        """
        if entry.tag and model.tags.get(file) == entry.tag:
            return model.texts[file], entry.tag
        path = f"{name}/{file}"
        try:
            return self._documents.read_listed(path, MAX_BYTES, entry.size or 0), entry.tag
        except TooLarge as error:
            return _too_large(error), entry.tag
        except Unread:
            if name not in self._models:
                raise
        return self._skeleton.read(path), ""

    # --- versions -------------------------------------------------------------------------------

    def _take(self, name: str, model: _Model, number: int) -> bool:
        """Take a version that is new, if it is published; with all its deltas."""
        place = f"{name}/{number}"
        text = self._document(f"{place}/{manifest.FILE_NAME}")
        if text is None:
            return False
        version = _Version(set())
        deltas = self._listed_deltas(place, version)
        found = self._deltas(place, sorted(deltas), version)
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
            with suppress(Unread):
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
        place = f"{name}/{number}"
        ahead = 1
        again = version.again.take(sorted(version.unread - {version.next}), _AGAIN)
        changed = self._put(name, number, again)
        while True:
            wanted = range(version.next, version.next + ahead)
            found = self._deltas(place, list(wanted), version)
            for one in wanted:
                if one not in found:
                    return changed
                self._skeleton.put_delta(name, number, one, found[one])
                version.deltas.add(one)
                changed = True
            ahead = min(2 * ahead, _AHEAD)

    def _relist(self, name: str, number: int, version: _Version) -> bool:
        """Compare with all that is there."""
        place, begin_s = f"{name}/{number}", self._now_s()
        listed: set[int] = set()
        try:
            text = self._document(f"{place}/{manifest.FILE_NAME}")
            is_same = text == self._skeleton.read(f"{place}/{manifest.FILE_NAME}")
            if is_same:
                listed = self._listed_deltas(place, version)
        except Unread:
            self._postpone(version, begin_s)
            return self._probe(name, number, version)
        if text is None:  # it is being taken away
            self._remove(name, number)
            del self._models[name].versions[number]
            return True
        if not is_same:  # published anew: its deltas are none of what is mirrored
            return self._take(name, self._models[name], number)
        version.deltas &= self._skeleton.deltas(name, number)
        gone = version.deltas - listed
        for one in gone | (version.unread - listed):
            self._remove(name, number, one)
        version.deltas -= gone
        version.unread &= listed
        known = version.deltas | (version.unpublished & listed)
        again = version.again.take(sorted(version.unread - known), _AGAIN)
        wanted = (listed - known - version.unread) | {
            *again,
            *version.compared.choose(sorted(known)),
        }
        changed = self._put(name, number, sorted(wanted)) or bool(gone)
        version.unpublished = listed - version.deltas - version.unread
        version.took_s = self._now_s() - begin_s
        return changed

    def _remove(self, name: str, *numbers: int) -> None:
        """Remove a model, a version of it, or a delta of that, and what is known against it."""
        self._skeleton.remove(name, *numbers)
        match numbers:
            case (number, one):
                self._documents.forget(f"{name}/{number}/deltas/{one:08}")
            case _:
                self._documents.forget("/".join([name, *map(str, numbers)]))

    def _postpone(self, version: _Version, begin_s: float) -> None:
        """Let a listing that could not be done be due as late as one that was."""
        version.listed_s = self._now_s()
        version.took_s = version.listed_s - begin_s

    def _put(self, name: str, number: int, numbers: list[int]) -> bool:
        """Read deltas and put those to the skeleton that it has not, or has otherwise."""
        version, place, changed = self._models[name].versions[number], f"{name}/{number}", False
        for begin in range(0, len(numbers), _AHEAD):
            found = self._deltas(place, numbers[begin : begin + _AHEAD], version)
            for one, data in found.items():
                if data != self._skeleton.read(f"{place}/deltas/{one:08}/{delta.FILE_NAME}"):
                    self._skeleton.put_delta(name, number, one, data)
                    changed = True
                version.deltas.add(one)
        return changed

    def _listed_deltas(self, place: str, version: _Version) -> set[int]:
        """Numbers of deltas that are there, published or not."""
        begin_s = self._now_s()
        names = self._documents.names(f"{place}/deltas")
        version.listed_s = self._now_s()
        version.took_s = version.listed_s - begin_s
        return {
            int(name)
            for name, entry in names.items()
            if entry.is_folder and len(name) == 8 and name.isascii() and name.isdigit()
        } - {0}

    def _deltas(self, place: str, numbers: list[int], version: _Version) -> dict[int, bytes]:
        """Return those that are published, by number, rising; notes which could not be read."""
        paths = {f"{place}/deltas/{one:08}/{delta.FILE_NAME}": one for one in numbers}
        found: dict[int, bytes] = {}
        documents = self._documents.read_many(list(paths), _MAX_DELTA)
        version.unread.difference_update(numbers)
        for path, data in documents.items():
            if isinstance(data, Unread):
                version.unread.add(paths[path])
            elif isinstance(data, TooLarge):
                found[paths[path]] = _too_large(data)
            elif data is not None and is_whole(data):
                found[paths[path]] = data
        return found

    def _document(self, path: str) -> bytes | None:
        try:
            data = self._documents.read(path, _MAX_MANIFEST)
        except TooLarge:  # nobody would read it
            return None
        return data if data is not None and is_whole(data) else None


def _too_large(error: TooLarge) -> bytes:
    """Return what stands for a document that nobody reads to its end.

    Readers of JSON and of YAML refuse it for its one key, which they name.
    """
    return json.dumps({error.message.rpartition(": ")[2]: None}).encode()
