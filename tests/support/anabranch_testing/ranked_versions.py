"""Versions that rank, from the folder to ranked candidates, without a server around them."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.store_trials import TrialStore
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.ranking.feature_program import ColumnLimits
from anabranch_runtime.ranking.requests import Ranked, RankRequest
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_server.loader.version_plans import version_plan
from anabranch_server.processes.loader_messages import Found
from anabranch_server.processes.plans import VersionPlan
from anabranch_server.worker.builds import Builds
from anabranch_testing.groups import Collector
from anabranch_wire.names import ModelName

__all__ = ["RankedRepository", "built", "rank"]

_LIMITS: Final = ColumnLimits(10_000, 1_000_000, 1_000_000)


class RankedRepository:
    """One model `m`, a cache, and what a worker is told of its version 1.

    Attributes:
        root: of everything.
        folder: of the version.
        cache: of what is made of it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "models" / "m" / "1"
        self.cache = root / "cache"

    def prepare(self) -> PreparedVersion:
        """Return the version, found good; raises what refuses it."""
        found = scan_repository(self.root / "models").models[ModelName("m")]
        settings = StoreSettings(
            SegmentCache(self.cache / "segments", 1 << 30),
            BuiltGraphs(self.cache / "cut", 1 << 30),
        )
        runner = OrtModelRunner()
        return prepare_version(found, 1, read_deployment(found.path), runner, store=settings)

    def told(self) -> VersionPlan:
        """Return what crosses processes."""
        found = Found(3, version_plan(self.prepare(), ()), {})
        return msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Found).version


async def built(group: SessionGroup, plan: VersionPlan) -> ServedVersion:
    """Build a version as a worker does, in a thread of its own."""
    rows = None if plan.store is None else TrialStore(Path(plan.store.segment)).view
    return await Builds(60.0).build(group, plan, rows, urgent=True)


def rank(served: ServedVersion, user: Mapping[str, Any], candidates: Mapping[str, Any]) -> Ranked:
    """Rank as a door does."""
    assert served.ranking is not None
    request = RankRequest(
        "json",
        {name: json.dumps(value).encode() for name, value in user.items()},
        {name: json.dumps(value).encode() for name, value in candidates.items()},
    )
    prepared = served.ranking.prepare(request, _LIMITS)
    inputs, rows = served.rules.order(prepared.arrays)
    assert rows == prepared.rows
    sink = Collector()
    served.group.submit(Ticket(ScoreRequest(inputs, rows, (), time.monotonic() + 30), served, sink))
    (done,) = sink.wait(1)
    assert done.error is None
    assert done.outputs is not None
    heads = {name: done.outputs[served.output_index[name]] for name in prepared.heads}
    return served.ranking.finish(prepared, heads)
