"""What runs of deltas change in the rows of a store, as its writer takes it.

A run is checked as a whole before its first row is staged: later nothing could be taken back. See
docs/formats.md, "Runs".
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.run_replay import check_run, stage_run
from anabranch_model_store.deltas.runs import RunFile, RunTable
from anabranch_runtime.store import Change
from anabranch_server.processes.plans import RunPlan, StorePlan
from anabranch_server.supervisor.store_coming import Fill
from anabranch_wire.errors import Corrupt

__all__ = ["Fills", "net_fill", "run_fills", "ways_to_fill", "ways_to_make"]

Fills = Callable[[StorePlan, Sequence[RunPlan]], Sequence[Fill]]
"""Returns what runs change in the rows of a store, one change for each."""


def run_fills(store: StorePlan, runs: Sequence[RunPlan]) -> list[Fill]:
    """Return one change for each run; the files are read when it is made, in any thread.

    A change raises Corrupt where its file is damaged or is not for such a store, Unavailable where
    it is gone, and Unsupported where it is of a newer release.
    """
    return [partial(_fill, run, len(store.capacities)) for run in runs]


def ways_to_fill(
    fills: Fills, store: StorePlan, runs: Sequence[RunPlan]
) -> Sequence[Sequence[Fill]]:
    """Return the ways to bring rows to where runs lead, the one that needs the least room last."""
    one_by_one = fills(store, runs)
    return (one_by_one, [net_fill(store, runs)]) if len(runs) > 1 else (one_by_one,)


def ways_to_make(
    fills: Fills, store: StorePlan, runs: Sequence[RunPlan]
) -> Sequence[Sequence[Fill]]:
    """Likewise, where nobody reads what lies between the changes.

    The last way first takes out all that is gone in the end: a full table may be renewed as a
    whole, where its index has no places for keys of before and of after.
    """
    if not runs:
        return ways_to_fill(fills, store, runs)
    one_by_one, net = fills(store, runs), _Net(runs, len(store.capacities))
    at_once = ([net.fill],) if len(runs) > 1 else ()
    return (one_by_one, *at_once, [net.erase, net.upsert])


def net_fill(store: StorePlan, runs: Sequence[RunPlan]) -> Fill:
    """Return what several runs change in the end, as one change, and nothing of what comes between.

    It needs no room for keys that a later run deletes; it takes longer. The change raises as those
    of `run_fills`.
    """
    return _Net(runs, len(store.capacities)).fill


def _fill(run: RunPlan, tables: int, change: Change) -> None:
    stage_run(_opened(run), tables, change)


class _Net:
    """What several runs change in the end: read and worked out once, with the first part of it."""

    def __init__(self, runs: Sequence[RunPlan], tables: int) -> None:
        self._runs = runs
        self._tables = tables

    def fill(self, change: Change) -> None:
        """Change all of it."""
        self.erase(change)
        self.upsert(change)

    def erase(self, change: Change) -> None:
        """Take out what is gone."""
        for one, is_last in self._last_words:
            gone = one.deleted[is_last[len(one.keys) :]]
            if len(gone):
                change.erase(one.table, gone)

    def upsert(self, change: Change) -> None:
        """Write the rows that stay."""
        for one, is_last in self._last_words:
            stays = is_last[: len(one.keys)]
            if stays.any():
                change.upsert(one.table, one.keys[stays], one.values[stays])

    @cached_property
    def _last_words(self) -> Sequence[tuple[RunTable, NDArray[np.bool_]]]:
        """Tables of runs, and which of their keys, and then of their deleted ones, no later has."""
        files = [_opened(run) for run in self._runs]
        for file in files:
            check_run(file, self._tables)
        by_table: dict[int, list[RunTable]] = {}
        for one in (table for file in reversed(files) for table in file.tables):
            by_table.setdefault(one.table, []).append(one)
        words: list[tuple[RunTable, NDArray[np.bool_]]] = []
        for tables in by_table.values():
            keys = [np.concatenate([one.keys, one.deleted]) for one in tables]
            words += zip(tables, _first_of_each(keys), strict=True)
        return words


def _first_of_each(parts: Sequence[NDArray[np.int64]]) -> Sequence[NDArray[np.bool_]]:
    """Return which keys are in no earlier place, of several arrays in a row.

    Args:
        parts: (n,) each, at least one.
    """
    keys = np.concatenate(parts)
    is_first = np.zeros(len(keys), np.bool_)
    is_first[np.unique(keys, return_index=True)[1]] = True
    return np.split(is_first, np.cumsum([len(part) for part in parts])[:-1])


def _opened(run: RunPlan) -> RunFile:
    file = RunFile.open(Path(run.path))
    if (file.first, file.last) != (run.first, run.last):
        raise Corrupt(
            f"{file.path.name}: expected deltas {run.first} to {run.last}, found {file.first} to "
            f"{file.last}; it is made anew where it is removed"
        )
    return file
