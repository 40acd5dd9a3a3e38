"""Golden requests of a version folder, run without a server."""

import tempfile
from pathlib import Path
from typing import Final

from anabranch_graph_opt.running import ModelRunner
from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.folder_snapshots import folder_snapshot
from anabranch_model_store.golden.cases import golden_files
from anabranch_model_store.golden.proof import GoldenReport, prove
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.preparation import prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import ModelFolder, VersionFolder
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.serving_yaml import Deltas, Deployment
from anabranch_model_store.version_files import verify_version
from anabranch_wire.errors import NotFound
from anabranch_wire.manifest import FILE_NAME
from anabranch_wire.names import ModelName

__all__ = ["check_golden"]

_NO_LIMIT: Final = 2**63 - 1


def check_golden(folder: Path, runner: ModelRunner) -> GoldenReport:
    """Prepare a version as a server does, and run its golden requests.

    The model's serving.yaml is not looked at, and deltas are left out.

    Args:
        folder: of the version.
        runner: runs its graph for the checks that come before.

    Raises:
        NotFound: there is no such folder, or it has no golden requests.
        AnabranchError: the version cannot be served, or a golden file is malformed.
    """
    if not folder.is_dir():
        raise NotFound(f"{folder}: no such folder")
    place = folder.absolute()
    snapshot = folder_snapshot(place)
    files = verify_version(place, snapshot)
    if not golden_files(files):
        raise NotFound(f"{folder}: the version has no golden/*.json")
    version = VersionFolder(snapshot.version, place, (place / FILE_NAME).is_file())
    model = ModelFolder(ModelName(snapshot.model), place.parent, {snapshot.version: version})
    deployment = Deployment(golden="off", deltas=Deltas(apply="manual"))
    with tempfile.TemporaryDirectory(prefix="anabranch-golden-") as scratch:
        store = StoreSettings(
            segments=SegmentCache(Path(scratch) / "segments", _NO_LIMIT),
            graphs=BuiltGraphs(Path(scratch) / "graphs", _NO_LIMIT),
            items=ItemCache(Path(scratch) / "items", _NO_LIMIT),
        )
        prepared = prepare_version(model, snapshot.version, deployment, runner, store=store)
        return prove(files, prepared)
