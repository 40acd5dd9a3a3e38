"""One scrape of a whole server: counters of all workers added up, and what is true at the moment.

Everything is gathered on the event loop; the text is made on a thread beside it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from anabranch_runtime.counters import Series
from anabranch_runtime.cpu import kernel_isa
from anabranch_server.describe import ModelView, WorkerView
from anabranch_server.describe.workers import WorkerState
from anabranch_server.metrics import METRICS, Value, exposition, process_figures
from anabranch_server.metrics.sums import added_up
from anabranch_server.metrics.totals import EXITED, Totals
from anabranch_server.processes.plans import StatePlan
from anabranch_server.sources import SourceCounts
from anabranch_server.supervisor.effects import KillReason
from anabranch_server.supervisor.keeper_counts import Durations, ReloadCounts
from anabranch_server.supervisor.store_values import store_values
from anabranch_server.supervisor.stores import Stores
from anabranch_server.supervisor.vanishing import Vanishing
from anabranch_server.supervisor.workers import Pool

__all__ = ["Scrapes", "Sources", "reload_series"]

_REFRESH_S: Final = 0.2
"""How long workers may take to bring their gauges up to date."""

_BACKEND: Final = "ort-cpu"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a scrape finds what it shows. Everything is called on the event loop.

    Attributes:
        pool: workers that live.
        totals: what those counted that died.
        vanishing: what is not shown any more.
        workers: worker processes as operators see them.
        models: models as operators see them.
        states: model -> what it serves.
        stores: have the rows of their tables.
        leases: model -> workers that may read it, and for how long one kept what had passed.
        pids: name of a process that is no worker -> its number, if it is there.
        version: of the server.
        remote: looks at the repository, where that is on another machine.
    """

    pool: Pool
    totals: Totals
    vanishing: Vanishing
    workers: Callable[[], Sequence[WorkerView]]
    models: Callable[[], Sequence[ModelView]]
    states: Callable[[], Mapping[str, StatePlan]]
    stores: Stores
    leases: Callable[[str], tuple[int, float]]
    pids: Callable[[], Mapping[str, int | None]]
    version: str
    remote: SourceCounts | None = None


class Scrapes:
    """Makes the text of scrapes, one after the other. Event loop."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._turn = asyncio.Lock()

    async def render(self) -> bytes:
        """Return the text of a scrape."""
        sources = self._sources
        async with self._turn:
            await sources.pool.refresh(_REFRESH_S)
            await sources.stores.refresh()
            now_s = asyncio.get_running_loop().time()
            sources.totals.prune(lambda series: sources.vanishing.is_over(series, now_s))
            parts = [worker.read_counters() for worker in sources.pool]
            counted = [
                series
                for series in added_up([*parts, sources.totals.all_series()])
                if not sources.vanishing.is_over(series, now_s)
            ]
            values = list(self._values())
            return await asyncio.to_thread(exposition, counted, values)

    def _values(self) -> Iterator[Value]:
        sources = self._sources
        states = Counter(worker.state for worker in sources.workers())
        for state in get_args(WorkerState):
            yield Value("anabranch_workers", (state,), states[state])
        for reason in (EXITED, *get_args(KillReason)):
            count = sources.totals.restarts.get(reason, 0)
            yield Value("anabranch_worker_restarts_total", (reason,), count)
        plans = sources.states()
        for model in sources.models():
            yield Value("anabranch_model_ready", (model.name,), model.state == "READY")
            plan = plans.get(model.name)
            if plan is not None:
                yield from _snapshot(model, plan)
                yield from _optimized(model.name, plan)
        for name, plan in plans.items():
            if stores := sources.stores.stores(name):
                yield from store_values(name, plan, stores, sources.leases(name))
        if (remote := sources.remote) is not None:
            yield Value("anabranch_repository_reachable", (), bool(remote.is_reachable))
            yield Value("anabranch_repository_failures_total", (), remote.failures)
        yield Value("anabranch_build_info", (sources.version, _BACKEND, kernel_isa()), 1)
        pids = {str(worker.id.index): worker.pid for worker in sources.pool}
        for name, pid in {**pids, **sources.pids()}.items():
            if pid is not None:
                for figure, value in process_figures(pid=pid).items():
                    yield Value(figure, (name,), value)


def _snapshot(model: ModelView, plan: StatePlan) -> Iterator[Value]:
    """Yield what is known of the version that answers by default."""
    at = (model.name,)
    for version in plan.versions:
        if version.version != plan.default:
            continue
        applied = [view.applied for view in model.versions if view.version == version.version]
        values = {
            "version": version.version,
            "delta": version.delta,
            "step": version.step,
            "event_timestamp_seconds": version.event_time,
            "published_timestamp_seconds": version.published,
            "applied_timestamp_seconds": applied[0] if applied else None,
        }
        for name, value in values.items():
            if value is not None:
                yield Value(f"anabranch_snapshot_{name}", at, value)


def _optimized(model: str, plan: StatePlan) -> Iterator[Value]:
    """Yield what became of the lookups of each version in memory."""
    for version in plan.versions:
        if version.split is not None:
            at = (model, str(version.version))
            yield Value("anabranch_optimized_lookups", (*at, "cut"), version.split.lookups_cut)
            yield Value("anabranch_optimized_lookups", (*at, "left"), version.split.lookups_left)


def reload_series(counts: ReloadCounts) -> list[Series]:
    """Return the counters of reloads as series of a page."""
    return [
        *(_counter("anabranch_reloads_total", at, n) for at, n in counts.reloads.items()),
        *(_counter("anabranch_reload_failures_total", at, n) for at, n in counts.failures.items()),
        *(_counter("anabranch_delta_rows_total", at, n) for at, n in counts.delta_rows.items()),
        *(
            _histogram("anabranch_reload_duration_seconds", at, durations)
            for at, durations in counts.phases.items()
        ),
        *(
            _histogram("anabranch_publish_to_served_seconds", at, durations)
            for at, durations in counts.publish_to_served.items()
        ),
    ]


def _counter(name: str, values: Sequence[str], count: int) -> Series:
    return Series("counter", name, _labels(name, values), (float(count),), (), float(count), 0)


def _histogram(name: str, values: Sequence[str], durations: Durations) -> Series:
    buckets = tuple(map(float, durations.counts))
    bounds = METRICS[name].bounds
    labels = _labels(name, values)
    return Series("histogram", name, labels, buckets, bounds, durations.sum, durations.count)


def _labels(name: str, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs as a page has them, ascending by key."""
    return tuple(sorted(zip(METRICS[name].labels, values, strict=True)))
