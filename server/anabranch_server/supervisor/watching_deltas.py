"""The deltas of one version, looked at again and again: which have been published.

A look costs a few `stat`s, however many there are: it asks for the next numbers, and for those
whose folder is there and not published. The folder is listed where it has changed otherwise, and
now and then. Only the `delta.json` of deltas that are new is read. It is created in one step, so
that what is there is complete.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from anabranch_model_store.deltas.delta_folders import read_delta
from anabranch_model_store.repository import Ignored
from anabranch_server.supervisor.seen_deltas import (
    NO_DELTAS,
    Ranges,
    SeenDeltas,
    ranges_of,
    with_number,
    without_newest,
)
from anabranch_server.supervisor.watching_marks import FileMark, has_gone, mark
from anabranch_wire.delta import FILE_NAME, Delta
from anabranch_wire.errors import AnabranchError

__all__ = ["DELTAS", "DeltaWatch"]

DELTAS: Final = "deltas"

_NAME: Final = re.compile(r"[0-9]{8}")
_RELIST_S: Final = 60.0
"""The time of a folder that changes all the time does not tell one change from another."""
_ASKED: Final = 4
"""Unpublished folders at either end that a look asks for: a dead attempt leaves one for ever."""
_AHEAD: Final = 3
_READ: Final = 16
"""New deltas of one look that are read; of more, only the newest."""
_JUMPS: Final = 16
_NOTED: Final = 20


class _Listing(NamedTuple):
    at_s: float
    mark: FileMark
    was_fresh: bool


class DeltaWatch:
    """What is known of the deltas of one version folder. Owned by one thread at a time.

    Args:
        path: the version folder, where it lies in the repository.
        place: the same, for people.
        model: name of the model.
        version: number of the version.

    Attributes:
        ignored: what lies among the deltas and is none.
        are_there: whether there is a folder of deltas, as far as is known.
    """

    def __init__(self, path: str, place: str, model: str, version: int) -> None:
        self.ignored: frozenset[Ignored] = frozenset()
        self.are_there = False
        self._version_path = path
        self._path = os.path.join(path, DELTAS)
        self._place = place
        self._about = (model, version)
        self._mark: FileMark | None = None
        self._listing: _Listing | None = None
        self._ranges: Ranges = ()
        self._open: set[int] = set()
        self._newest_mark: FileMark | None = None
        self._jumps: dict[int, int] = {}
        self._seen = NO_DELTAS

    def look(self, now_s: float, wall_s: float) -> SeenDeltas:
        """Return what has been published; the same object as long as nothing changes.

        Args:
            now_s: monotonic clock.
            wall_s: seconds since 1970, the clock of modification times.
        """
        found = mark(self._path)
        if found is None:
            if has_gone(self._path):
                self._forget()
            return self._seen
        self.are_there = True
        before = self._ranges
        has_changed = found != self._mark
        fresh = self._probe(_AHEAD if has_changed else 0)
        is_explained = not has_changed or bool(fresh)
        self._mark = found
        if not is_explained or self._is_stale(found, now_s):
            self._list(found, now_s, wall_s)
        self._read_newest(before)
        return self._seen

    # --- which there are ------------------------------------------------------------------------

    def _probe(self, ahead: int) -> list[int]:
        """Ask for what comes next, also `ahead` numbers beyond one that is missing.

        Returns:
            The numbers whose folder is new.
        """
        waiting = sorted(self._open)
        for number in {*waiting[:_ASKED], *waiting[-_ASKED:]}:
            self._ask(number)
        fresh = []
        last = max(self._newest, max(self._open, default=0))
        number = last + 1
        while number <= last + 1 + ahead:
            if os.path.isdir(self._folder(number)):
                fresh.append(number)
                self._ask(number)
                last = number
            number += 1
        return fresh

    def _ask(self, number: int) -> None:
        """Look whether a delta whose folder is there has been published."""
        if os.path.isfile(self._file(number)):
            self._open.discard(number)
            self._ranges = with_number(self._ranges, number)
        else:
            self._open.add(number)

    def _is_stale(self, found: FileMark, now_s: float) -> bool:
        """Whether something may have changed since the last listing that nobody looked for."""
        last = self._listing
        if last is None:
            return True
        may_differ = last.was_fresh or last.mark != found
        return may_differ and now_s - last.at_s >= _RELIST_S

    def _list(self, found: FileMark, now_s: float, wall_s: float) -> None:
        """Look at every name; those that were published stay so as long as they are there."""
        numbers, others = [], []
        try:
            with os.scandir(self._path) as entries:
                for entry in entries:
                    name = entry.name
                    if _NAME.fullmatch(name) and int(name) > 0:
                        numbers.append(int(name))
                    elif not name.startswith("."):
                        others.append(name)
        except OSError:
            return  # what cannot be listed has not gone
        self._listing = _Listing(now_s, found, found.is_fresh(wall_s))
        known = SeenDeltas(self._ranges)
        self._open.clear()
        published = []
        for number in sorted(numbers):
            if number in known or os.path.isfile(self._file(number)):
                published.append(number)
            else:
                self._open.add(number)
        self._ranges = ranges_of(published)
        self._note(sorted(others))

    def _note(self, names: list[str]) -> None:
        reason = "no delta: expected a folder named by 8 digits, from 00000001"
        self.ignored = frozenset(
            Ignored(f"{self._place}/{DELTAS}/{name}", reason) for name in names[:_NOTED]
        )

    # --- what they say --------------------------------------------------------------------------

    def _read_newest(self, before: Ranges) -> None:
        """Read what is new, and say what is known now."""
        newest, found = self._newest_there()
        if found is None:
            self._newest_mark, self._jumps = None, {}
            self._seen = NO_DELTAS
            return
        if found == self._newest_mark and self._ranges == self._seen.ranges:
            return
        self._newest_mark = found
        header = self._read(newest)
        self._read_others(before, newest)
        known = SeenDeltas(self._ranges)
        self._jumps = {n: first for n, first in sorted(self._jumps.items())[-_JUMPS:] if n in known}
        jumps = tuple((first, number) for number, first in self._jumps.items())
        if header is None:
            self._seen = SeenDeltas(self._ranges, fingerprint=found.fingerprint, jumps=jumps)
            return
        self._seen = SeenDeltas(
            self._ranges,
            header.replaces_from,
            header.step,
            header.event_time,
            header.created,
            found.fingerprint,
            jumps,
        )

    def _newest_there(self) -> tuple[int, FileMark | None]:
        """Return the newest one; those whose file has been taken away count no more."""
        while newest := self._newest:
            found = mark(self._file(newest))
            if found is not None:
                return newest, found
            self._ranges = without_newest(self._ranges)
            self._open.add(newest)
        return 0, None

    def _read_others(self, before: Ranges, newest: int) -> None:
        """Read the last of the other new ones: one of them may stand for many."""
        known = before[-1][1] if before else None
        if known is not None:
            there = SeenDeltas(self._ranges)
            for number in range(max(known + 1, newest - _READ), newest):
                if number in there:
                    self._read(number)
        self._read_beginnings(before)

    def _read_beginnings(self, before: Ranges) -> None:
        """Read what a stretch begins with where others were removed: one of them replaces those."""
        known = {1, *(first for first, _ in before)}
        for first, last in self._ranges:
            if first in known:
                continue
            for number in range(first, min(last, first + _READ) + 1):
                self._read(number)
                if number in self._jumps:
                    break

    def _read(self, number: int) -> Delta | None:
        """Return what a delta says; None where that makes no sense. Whoever applies it says why."""
        self._jumps.pop(number, None)
        try:
            header = read_delta(Path(self._version_path), number)
        except AnabranchError:
            return None
        if header is None or (header.model, header.version) != self._about:
            return None
        if header.replaces_from < number:
            self._jumps[number] = header.replaces_from
        return header

    # --- small things ---------------------------------------------------------------------------

    @property
    def _newest(self) -> int:
        return self._ranges[-1][1] if self._ranges else 0

    def _folder(self, number: int) -> str:
        return os.path.join(self._path, f"{number:08}")

    def _file(self, number: int) -> str:
        return os.path.join(self._version_path, _relative(number))

    def _forget(self) -> None:
        self.ignored, self.are_there = frozenset(), False
        self._mark = self._listing = self._newest_mark = None
        self._ranges, self._open, self._jumps = (), set(), {}
        self._seen = NO_DELTAS


def _relative(number: int) -> str:
    return f"{DELTAS}/{number:08}/{FILE_NAME}"
