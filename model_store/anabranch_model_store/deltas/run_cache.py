"""Runs in the cache folder: found by the deltas that they cover, cleared by size and when merged.

A folder for each version, by its identity; a file for each run, by the first and the last delta of
it and by what tells publications of its deltas apart. Files are complete from the moment they have
their names, and a name never comes to mean other rows, so threads and processes share them.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from anabranch_model_store.cache_entries import is_locked, mark_used, name_of, newest_first
from anabranch_model_store.deltas.lineages import Marks, is_part, joined, lineage_name
from anabranch_model_store.deltas.run_writing import RANGE_BYTES, RunHead, write_run
from anabranch_model_store.deltas.runs import RunFile, RunTable
from anabranch_model_store.deltas.targets import Run
from anabranch_wire.errors import AnabranchError

__all__ = ["RunCache", "fewest"]

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"(\d{8})-(\d{8})-([0-9a-f]{16})\.run")
_SUFFIX: Final = ".run"
_MERGED_BYTES: Final = 4 << 20
"""Of rows that are merged at a time, while other threads of the process want the interpreter."""
_GRACE_S: Final = 60.0
"""How long a run stays beside a longer one: some process may be about to be told of it."""


def fewest(runs: Iterable[Run], first: int, last: int) -> tuple[Run, ...]:
    """Return the fewest runs that follow each other from one delta on, and come farthest.

    Args:
        runs: to choose from.
        first: where they begin.
        last: the delta that they do not pass.
    """
    beginning: dict[int, list[Run]] = {}
    for run in runs:
        if first <= run.first <= run.last <= last:
            beginning.setdefault(run.first, []).append(run)
    ways: dict[int, tuple[int, Run | None]] = {first: (0, None)}  # by what comes next
    for at in sorted({first, *(run.last + 1 for one in beginning.values() for run in one)}):
        for run in beginning.get(at, ()) if at in ways else ():
            length = ways[at][0] + 1
            if run.last + 1 not in ways or length < ways[run.last + 1][0]:
                ways[run.last + 1] = (length, run)
    chosen: list[Run] = []
    at = max(ways)
    while (run_before := ways[at][1]) is not None:
        chosen.append(run_before)
        at = run_before.first
    return tuple(reversed(chosen))


class RunCache:
    """The folder of runs. For several threads, as long as one at a time prunes.

    Args:
        folder: made on first use, mode 0700.
        limit_bytes: what `prune` keeps at most, beside what is in use.
        grace_s: how long a run stays that a longer one holds.
    """

    def __init__(self, folder: Path, limit_bytes: int, grace_s: float = _GRACE_S) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._grace_s = grace_s
        self._sound: set[Path] = set()
        self._marks: dict[Path, Marks] = {}
        self._lock = threading.Lock()

    def cover(
        self, identity: str, first: int, last: int, is_meant: Callable[[Run, Marks, int], bool]
    ) -> tuple[Run, ...]:
        """Return the fewest runs from one delta on that come farthest, every byte of them checked.

        Args:
            identity: of the version.
            first: the delta that they begin with.
            last: the delta that they do not pass; where it is not reached, runs are missing.
            is_meant: whether a run is made of those deltas that are meant; told the run, the marks
                of its deltas, and the last delta of all that were chosen with it.
        """
        runs = _runs(self._place(identity))
        while True:
            chosen = fewest(runs, first, last)
            others = {
                run
                for run in chosen
                if (marks := self._sound_marks(run, identity)) is None
                or not is_meant(run, marks, chosen[-1].last)
            }
            if not others:
                return chosen
            runs = [run for run in runs if run not in others]

    def part_of(self, identity: str, runs: Sequence[Run]) -> tuple[Run, ...]:
        """Return the fewest runs that say what others say, made of the same deltas.

        Args:
            identity: of the version.
            runs: which follow each other; where the last of them is not reached, some are missing.
                What they are made of is remembered when their files have gone.
        """
        if not runs:
            return ()
        try:
            whole = joined(map(self.marks_of, runs))
        except AnabranchError:
            return ()
        return self.cover(
            identity,
            runs[0].first,
            runs[-1].last,
            lambda run, marks, _: is_part(marks, run.first, run.last, whole),
        )

    def marks_of(self, run: Run) -> Marks:
        """Return the marks of a run, also where its file has gone.

        Raises:
            Corrupt, Unsupported, Unavailable: they are not known, and it cannot be read.
        """
        with self._lock:
            marks = self._marks.get(run.path)
        if marks is None:
            marks = RunFile.open(run.path).marks
            with self._lock:
                self._marks[run.path] = marks
        return marks

    def put(
        self,
        head: RunHead,
        sources: Sequence[Sequence[RunTable]],
        on_range: Callable[[], None] = lambda: None,
        range_bytes: int = RANGE_BYTES,
    ) -> Run:
        """Keep changes as one run; see `write_run`.

        Raises:
            OSError: the folder cannot be written, or the disk is full.
        """
        folder = self._place(head.identity)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = _name(head.first, head.last, head.marks)
        write_run(folder, name, head, sources, on_range, range_bytes)
        with self._lock:
            self._sound.add(folder / name)
            self._marks[folder / name] = head.marks
        return Run(folder / name, head.first, head.last)

    def merge(
        self, identity: str, runs: Sequence[Run], on_range: Callable[[], None] = lambda: None
    ) -> Run:
        """Keep runs that follow each other as one; they stay.

        Raises:
            Corrupt, Unavailable: one of them cannot be read any more.
            OSError: the folder cannot be written, or the disk is full.
        """
        files = [RunFile.open(run.path) for run in runs]
        others = tuple(number for file in files for number in file.others)
        marks = joined(file.marks for file in files)
        head = RunHead(identity, runs[0].first, runs[-1].last, others, marks)

        def next_range() -> None:
            for file in files:
                file.release()
            on_range()

        return self.put(head, [file.tables for file in files], next_range, _MERGED_BYTES)

    def prune(self, in_use: Collection[str]) -> None:
        """Remove half-made runs, those that longer ones hold, and what was used longest ago.

        What processes have mapped stays readable for them, and what another server is making stays.

        Args:
            in_use: paths of runs that processes may still be told of, among others.
        """
        used = {Path(path) for path in in_use}
        there: set[Path] = set()
        kept: list[tuple[float, int, Path]] = []
        for folder in newest_first(self._folder, Path.is_dir):
            runs = []
            for path in newest_first(folder, Path.is_file):
                run = _run(path)
                if run is not None:
                    runs.append(run)
                elif not is_locked(path):
                    self._remove(path)
            there.update(run.path for run in runs)
            for run, longer in _held(runs).items():
                if run.path not in used:
                    size, age_s, time_s = _stat(run.path)
                    if age_s >= self._grace_s and any(self._holds(one, run) for one in longer):
                        self._remove(run.path)
                    else:
                        kept.append((time_s, size, run.path))
            if not runs:
                with suppress(OSError):  # another process puts something into it
                    folder.rmdir()
        with self._lock:
            self._sound &= there  # what other processes have removed is forgotten here too
            for path in self._marks.keys() - there - used:
                del self._marks[path]
        total = 0
        for _, size, path in sorted(kept, reverse=True):
            total += size
            if total > self._limit_bytes:
                self._remove(path)

    def _place(self, identity: str) -> Path:
        return self._folder / name_of(identity)

    def _sound_marks(self, run: Run, identity: str) -> Marks | None:
        """Return the marks of a run; None, and it is removed, where it is not what was written."""
        with self._lock:
            known = self._marks.get(run.path) if run.path in self._sound else None
        if known is None or not run.path.exists():
            try:
                file = RunFile.open(run.path)
                file.verify()
                known = file.marks
                name = _name(file.first, file.last, known)
                is_sound = (name, file.identity) == (run.path.name, identity)
                file.release()
                text = "it is of other deltas than its name says"
            except AnabranchError as error:
                is_sound, text = False, error.message
            if not is_sound or known is None:
                _log.warning(
                    "a cached run is made anew: %s", text, extra={"event": "cache_damaged"}
                )
                self._remove(run.path)
                return None
            with self._lock:
                self._sound.add(run.path)
                self._marks[run.path] = known
        mark_used(run.path)
        return known

    def _holds(self, longer: Run, run: Run) -> bool:
        """Whether a run says what another one says, and perhaps more."""
        try:
            marks, whole = self.marks_of(run), self.marks_of(longer)
        except AnabranchError:
            return False
        return is_part(marks, run.first, run.last, whole)

    def _remove(self, path: Path) -> None:
        with self._lock:
            self._sound.discard(path)
        with suppress(OSError):
            path.unlink()


def _runs(folder: Path) -> list[Run]:
    """Return the runs of a folder; none where there is no folder."""
    with suppress(OSError):
        return [run for path in folder.iterdir() if (run := _run(path)) is not None]
    return []


def _name(first: int, last: int, marks: Marks) -> str:
    return f"{first:08}-{last:08}-{lineage_name(marks)}{_SUFFIX}"


def _run(path: Path) -> Run | None:
    found = _NAME.fullmatch(path.name)
    return None if found is None else Run(path, int(found[1]), int(found[2]))


def _held(runs: Sequence[Run]) -> dict[Run, list[Run]]:
    """Return for each run those that hold all its numbers, and more."""
    held: dict[Run, list[Run]] = {}
    before: list[Run] = []
    for run in sorted(runs, key=lambda one: (one.first, -one.last)):
        before = [one for one in before if one.last >= run.first]
        own = (run.first, run.last)
        held[run] = [one for one in before if one.last >= run.last and (one.first, one.last) != own]
        before.append(run)
    return held


def _stat(path: Path) -> tuple[int, float, float]:
    """Return size, age and time of last use of a file."""
    with suppress(OSError):
        stat = path.stat()
        return stat.st_size, time.time() - stat.st_mtime, stat.st_mtime
    return 0, 0.0, 0.0
