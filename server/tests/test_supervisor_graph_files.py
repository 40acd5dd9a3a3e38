"""Optimised graphs that some model's state or kept version names stay in the cache folder."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from anabranch_publish import publish_version
from anabranch_server.administration import ActionRequest
from anabranch_server.loader.building import GraphBuilder
from anabranch_server.loader.examination import examine
from anabranch_server.loader.row_cache import RowCache
from anabranch_server.processes.failures import error_of
from anabranch_server.processes.loader_messages import Found, LoadVersion, Progress
from anabranch_testing.event_loops import on_loop
from anabranch_testing.graphs import scale_model
from anabranch_testing.keepers import KeptServer, kept_server


class TightLoader:
    """Looks at versions as a loader process does, and keeps no graph that is not in use."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache

    async def load(self, request: LoadVersion, on_progress: Callable[[Progress], None]) -> Found:
        builder = GraphBuilder(self._cache, limit_bytes=0)
        rows = RowCache(self._cache, reserve=0.25, limit_bytes=0)
        answer = await asyncio.to_thread(examine, request, lambda progress: None, builder, rows)
        if isinstance(answer, Found):
            return answer
        raise error_of(answer.kind, answer.error)


def named(server: KeptServer) -> set[Path]:
    """Folders of the graphs that workers have, or a worker that is started would be told of."""
    plans = [plan for state in server.switching.states.values() for plan in state.versions]
    assert all(plan.optimized for plan in plans)
    return {Path(plan.path).parent for plan in plans}


def publish(models: Path, model: str, version: int) -> None:
    made = scale_model(models.parent / f"made-{model}-{version}").path
    publish_version(models / model, made, version=version)


@on_loop
async def test_a_full_cache_keeps_what_any_model_serves_or_keeps_and_nothing_else(
    tmp_path: Path,
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for model in ("a", "b"):
        publish(models, model, 1)
    loader = TightLoader(tmp_path / "cache")
    async with kept_server(models, tmp_path / "state", loader=loader) as server:
        graphs = tmp_path / "cache" / "graphs"
        assert set(graphs.iterdir()) == named(server)
        assert len(named(server)) == 2
        first = named(server)

        for version in (2, 3):
            publish(models, "a", version)
            await server.look()
            assert named(server) <= set(graphs.iterdir())

        kept = {plan.version for plan in server.state("a").versions}
        assert kept == {2, 3}
        await server.admin.act("rollback", "a", ActionRequest(version=2))
        await server.admin.act("unload", "b", ActionRequest())
        publish(models, "a", 4)
        await server.admin.act("load", "a", ActionRequest(version=4))

        assert named(server) <= set(graphs.iterdir())
        assert not first & set(graphs.iterdir())
