"""Runs of deltas that give marked rows a marker, and versions at some delta."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from anabranch_model_store.deltas.run_writing import RunHead, write_run
from anabranch_model_store.deltas.runs import sorted_rows
from anabranch_model_store.deltas.targets import RowChanges
from anabranch_server.processes.plans import RunPlan, VersionPlan
from anabranch_testing.marked_rows import DIM, ROWS, TABLES, keys

__all__ = ["at_delta", "marker_run", "write_rows_run"]

_IDENTITY = "sha256:" + "0" * 64


def write_rows_run(
    folder: Path, first: int, last: int, changes: Mapping[int, RowChanges]
) -> RunPlan:
    """Write a run of deltas `first` to `last`.

    Args:
        folder: where to write it; made where it is missing.
        first: the first delta.
        last: the last one.
        changes: by number of the table in the segment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{first:08}-{last:08}.run"
    tables = [sorted_rows(table, change) for table, change in sorted(changes.items())]
    write_run(folder, name, RunHead(_IDENTITY, first, last), [tables])
    return RunPlan(str(folder / name), first, last)


def marker_run(folder: Path, first: int, last: int | None = None) -> RunPlan:
    """Write a run that gives every marked row the number of its last delta as the marker."""
    end = first if last is None else last
    values, none = np.full((ROWS, DIM), float(end), np.float32), np.empty(0, np.int64)
    changes = {table: RowChanges(keys(table), values, none) for table in range(len(TABLES))}
    return write_rows_run(folder, first, end, changes)


def at_delta(version: VersionPlan, delta: int, folder: Path) -> VersionPlan:
    """Return a version of marked rows at a delta, made from the one before.

    All deltas until then are one run, so that nothing but the increment leads there from it.
    """
    if not delta:
        return version
    return msgspec.structs.replace(
        version,
        delta=delta,
        step=delta,
        runs=(marker_run(folder, 1, delta),),
        increment=marker_run(folder, delta),
    )
