"""What runs of deltas change in the rows of a store, as its writer takes it.

A run is checked as a whole before its first row is staged: later nothing could be taken back. See
docs/formats.md, "Runs".
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.run_replay import check_run, stage_run
from anabranch_model_store.deltas.runs import RunFile, RunTable
from anabranch_runtime.store import Change
from anabranch_server.processes.plans import RunPlan, StorePlan
from anabranch_server.supervisor.store_coming import Fill
from anabranch_wire.errors import Corrupt

__all__ = ["Fills", "net_fill", "run_fills", "ways_to_fill"]

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


def net_fill(store: StorePlan, runs: Sequence[RunPlan]) -> Fill:
    """Return what several runs change in the end, as one change, and nothing of what comes between.

    It needs no room for keys that a later run deletes; it takes longer. The change raises as those
    of `run_fills`.
    """
    return partial(_fill_net, runs, len(store.capacities))


def _fill(run: RunPlan, tables: int, change: Change) -> None:
    stage_run(_opened(run), tables, change)


def _fill_net(runs: Sequence[RunPlan], tables: int, change: Change) -> None:
    files = [_opened(run) for run in runs]
    for file in files:
        check_run(file, tables)
    last: list[tuple[RunTable, NDArray[np.bool_]]] = []  # which rows no later run changes
    seen: dict[int, NDArray[np.int64]] = {}
    for one in (table for file in reversed(files) for table in file.tables):
        later = seen.get(one.table, np.empty(0, np.int64))
        last.append((one, ~np.isin(one.keys, later)))
        gone = one.deleted[~np.isin(one.deleted, later)]
        if len(gone):
            change.erase(one.table, gone)
        seen[one.table] = np.union1d(later, np.concatenate([one.keys, one.deleted]))
    for one, stays in last:
        if stays.any():
            change.upsert(one.table, one.keys[stays], one.values[stays])


def _opened(run: RunPlan) -> RunFile:
    file = RunFile.open(Path(run.path))
    if (file.first, file.last) != (run.first, run.last):
        raise Corrupt(
            f"{file.path.name}: expected deltas {run.first} to {run.last}, found {file.first} to "
            f"{file.last}; it is made anew where it is removed"
        )
    return file
