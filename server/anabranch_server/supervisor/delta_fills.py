"""What runs of deltas change in the rows of a store, as its writer takes it.

A run is checked as a whole before its first row is staged: later nothing could be taken back. See
docs/formats.md, "Runs".
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from anabranch_model_store.deltas.run_replay import stage_run
from anabranch_model_store.deltas.runs import RunFile
from anabranch_runtime.store import Change
from anabranch_server.processes.plans import RunPlan, StorePlan
from anabranch_server.supervisor.store_coming import Fill
from anabranch_wire.errors import Corrupt

__all__ = ["run_fills"]


def run_fills(store: StorePlan, runs: Sequence[RunPlan]) -> list[Fill]:
    """Return one change for each run; the files are read when it is made, in any thread.

    A change raises Corrupt where its file is damaged or is not for such a store, Unavailable where
    it is gone, and Unsupported where it is of a newer release.
    """
    return [partial(_fill, run, len(store.capacities)) for run in runs]


def _fill(run: RunPlan, tables: int, change: Change) -> None:
    file = RunFile.open(Path(run.path))
    if (file.first, file.last) != (run.first, run.last):
        raise Corrupt(
            f"{file.path.name}: expected deltas {run.first} to {run.last}, found {file.first} to "
            f"{file.last}; it is made anew where it is removed"
        )
    stage_run(file, tables, change)
