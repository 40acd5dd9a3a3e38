"""Rows of deltas on their way into runs: gathered in memory, and written when there are enough."""

from collections.abc import Sequence
from typing import Final

from anabranch_model_store.deltas.lineages import marks_of
from anabranch_model_store.deltas.run_cache import RunCache
from anabranch_model_store.deltas.run_writing import RunHead
from anabranch_model_store.deltas.runs import RunTable
from anabranch_model_store.deltas.targets import Run

__all__ = ["RunBuilding"]

_HELD_BYTES: Final = 64 << 20


class RunBuilding:
    """Makes runs of deltas that are given one after the other. Belongs to one thread.

    What was written stays in the cache, so that whoever begins again after a crash need not read
    those deltas once more.

    Args:
        cache: where runs are kept.
        identity: of the version.
        applied: the delta that the first one is applied to.
        held_bytes: rows that are held in memory before they are written.

    Attributes:
        last: the newest delta that was given.
    """

    def __init__(
        self, cache: RunCache, identity: str, applied: int, held_bytes: int = _HELD_BYTES
    ) -> None:
        self._cache = cache
        self._identity = identity
        self.last = applied
        self._written_to = applied
        self._held_limit = held_bytes
        self._held_bytes = 0
        self._held: list[tuple[RunTable, ...]] = []
        self._others: list[int] = []
        self._marks: list[tuple[int, int]] = []
        self._runs: list[Run] = []
        self._taken = 0

    def add(self, sequence: int, mark: int, tables: Sequence[RunTable], has_more: bool) -> None:
        """Take the rows of the next delta.

        Args:
            sequence: its number; deltas that it replaces are left out before it.
            mark: what tells it from others of that number.
            tables: its rows.
            has_more: whether it brings more than these.

        Raises:
            OSError: the cache folder cannot be written.
        """
        self._held.append(tuple(tables))
        self._held_bytes += sum(
            one.keys.nbytes + one.values.nbytes + one.deleted.nbytes for one in tables
        )
        if has_more:
            self._others.append(sequence)
        self._marks.append((sequence, mark))
        self.last = sequence
        if self._held_bytes >= self._held_limit:
            self._write()

    def take(self, runs: Sequence[Run], last: int) -> None:
        """Take deltas up to `last` from runs that are there already."""
        self._write()
        self._runs += runs
        self._taken = len(self._runs)
        self.last = self._written_to = last

    def finish(self) -> tuple[Run, ...]:
        """Return runs of all deltas, one after the other; one where the rows were read just now.

        Raises:
            AnabranchError, OSError: the cache folder cannot be read or written.
        """
        self._write()
        if len(self._runs) - self._taken > 1:
            merged = self._cache.merge(self._identity, self._runs[self._taken :])
            self._runs[self._taken :] = [merged]
        return tuple(self._runs)

    def _write(self) -> None:
        if self.last == self._written_to:
            return
        others, marks = tuple(self._others), marks_of(self._marks)
        head = RunHead(self._identity, self._written_to + 1, self.last, others, marks)
        self._runs.append(self._cache.put(head, self._held))
        self._held, self._held_bytes, self._others, self._marks = [], 0, [], []
        self._written_to = self.last
