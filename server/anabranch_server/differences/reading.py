"""Snapshots in folders, compared in this process."""

from anabranch_model_store.differences.snapshot_contents import open_snapshot
from anabranch_model_store.differences.snapshot_differences import compare_snapshots
from anabranch_model_store.differences.snapshot_places import model_place
from anabranch_server.describe.differences import (
    DifferenceView,
    TableDifferenceView,
    WeightDifferenceView,
)

__all__ = ["read_difference"]

Place = tuple[str, str]
"""Folder of a model, and a snapshot of it such as `42+17`."""


def read_difference(before: Place, after: Place) -> DifferenceView:
    """Return what differs between two snapshots. Reads every row of both, some at a time.

    Raises:
        AnabranchError: one is not there or cannot be read.
    """
    found = compare_snapshots(*[open_snapshot(*model_place(*one)) for one in (before, after)])
    return DifferenceView(
        [
            TableDifferenceView(one.name, one.added, one.changed, one.removed, one.change_norm)
            for one in found.tables
        ],
        [WeightDifferenceView(one.name, one.changed, one.change_norm) for one in found.dense],
    )
