"""Which delta changed a row last, as far as the runs of its version still tell."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.runs import RunFile
from anabranch_server.processes.plans import RunPlan, VersionPlan
from anabranch_wire.errors import AnabranchError

__all__ = ["changed_by"]


def changed_by(version: VersionPlan, table: int, keys: NDArray[np.int64]) -> list[int | None]:
    """Return, for each key, the delta that wrote or deleted its row last; in any thread.

    None where no delta did, and where the run that did is of several deltas: which one it was is
    not in there any more. So it is where that is in a file that cannot be read, or before it.

    Args:
        version: at the delta that is asked about.
        table: its number in the segment.
        keys: (n,).
    """
    found: list[int | None] = [None] * len(keys)
    unseen = np.ones(len(keys), np.bool_)
    for run in _newest_first(version):
        try:
            hit = unseen & _is_in(RunFile.open(Path(run.path)), table, keys)
        except AnabranchError:  # whoever asks for rows wants their numbers above all
            break
        if run.first == run.last:
            for index in np.flatnonzero(hit).tolist():
                found[index] = run.last
        unseen &= ~hit
        if not unseen.any():
            break
    return found


def _newest_first(version: VersionPlan) -> Sequence[RunPlan]:
    """Return the runs, before them the last one by itself, which may be part of a longer one."""
    last = version.increment
    is_one = last is not None and last.first == last.last == version.delta
    return (*([last] if last is not None and is_one else []), *reversed(version.runs))


def _is_in(run: RunFile, table: int, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which keys a run writes or deletes."""
    hit = np.zeros(len(keys), np.bool_)
    for one in run.tables:
        if one.table == table:
            for known in (one.keys, one.deleted):
                if len(known):
                    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
                    hit |= known[at] == keys
    return hit
