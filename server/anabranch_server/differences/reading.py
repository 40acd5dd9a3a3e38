"""Snapshots in folders or at URLs, compared in this process."""

from contextlib import ExitStack
from pathlib import Path

from anabranch_model_store.deltas.origins import LocalOrigin, Origin
from anabranch_model_store.differences.snapshot_contents import open_snapshot
from anabranch_model_store.differences.snapshot_differences import compare_snapshots
from anabranch_model_store.differences.snapshot_places import model_place
from anabranch_server.describe.differences import (
    DifferenceView,
    TableDifferenceView,
    WeightDifferenceView,
)
from anabranch_wire.places import local_path

__all__ = ["read_difference"]

Place = tuple[str, str]
"""Folder or URL of a model, and a snapshot of it such as `42+17`."""


def read_difference(before: Place, after: Place) -> DifferenceView:
    """Return what differs between two snapshots. Reads every row of both, some at a time.

    Files at URLs are fetched into a temporary folder first; credentials are those of the
    environment.

    Raises:
        AnabranchError: one is not there or cannot be read.
    """
    with ExitStack() as stack:
        models = {folder: _model(stack, folder) for folder, _ in (before, after)}
        opened = []
        for folder, snapshot in (before, after):
            local, origin = models[folder]
            opened.append(open_snapshot(*model_place(local, snapshot), origin))
        found = compare_snapshots(*opened)
    return DifferenceView(
        [
            TableDifferenceView(one.name, one.added, one.changed, one.removed, one.change_norm)
            for one in found.tables
        ],
        [WeightDifferenceView(one.name, one.changed, one.change_norm) for one in found.dense],
    )


def _model(stack: ExitStack, folder: str) -> tuple[Path, Origin]:
    """Return the folder of a model on this machine, and what brings its files."""
    path = local_path(folder)
    if path is not None:
        return path, LocalOrigin()
    from anabranch_model_store.differences.remote_models import remote_model  # seldom needed

    return stack.enter_context(remote_model(folder, {}))
