"""Scrapes of a whole server: two stand-ins that count, a third one that died."""

import os
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from anabranch_runtime.shared_words import SharedWords
from anabranch_server.describe import ModelView, VersionView, WorkerView
from anabranch_server.metrics import METRICS, RequestCounters
from anabranch_server.metrics.totals import Totals
from anabranch_server.processes.messages import Joined
from anabranch_server.supervisor.keeper_counts import ReloadCounts
from anabranch_server.supervisor.scrapes import Scrapes, Sources, reload_series
from anabranch_server.supervisor.stores import Stores
from anabranch_server.supervisor.transactions import Transactions, TransactionSettings
from anabranch_server.supervisor.vanishing import Vanishing
from anabranch_server.supervisor.workers import Pool
from anabranch_testing.catalogs import OwnCatalog
from anabranch_testing.event_loops import on_loop
from anabranch_testing.stand_ins import StandIn, until
from anabranch_testing.workers import scale_plan, state_of

_Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _samples(text: bytes) -> _Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def _value(samples: _Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


@on_loop
async def test_a_scrape_covers_the_whole_server(tmp_path: Path) -> None:
    counts, vanishing = ReloadCounts(), Vanishing()
    counts.succeeded("m", "version", {"building": 300.0, "warming": 20.0})
    counts.failed("m", "version", "checksum")
    counts.served("m", "version", 3.0)
    totals = Totals(tmp_path / "totals", "0" * 16, lambda: reload_series(counts))
    transactions = Transactions(
        SharedWords.create(4),
        TransactionSettings(prepare_timeout_s=20, stall_s=20, incarnation=1, expected_workers=2),
    )
    pool = Pool(transactions, totals, 20)
    await transactions.begin(pool)
    plan = scale_plan(tmp_path, 7)
    view = ModelView(
        "m", "READY", None, None, {}, [VersionView(7, "READY", 0, applied=1764417661.0)], None
    )
    sources = Sources(
        pool,
        totals,
        vanishing,
        workers=lambda: [WorkerView(0, 1, "serving", 0.0, 0, {})],
        models=lambda: [view],
        states=lambda: {"m": state_of(plan)},
        stores=Stores("map", 1, lambda: None),
        leases=transactions.leases,
        pids=lambda: {"supervisor": os.getpid(), "loader": None},
        version="0.1.0",
    )
    workers = [StandIn(index) for index in range(3)]
    try:
        for worker in workers:
            worker.attach(pool)
            worker.greet()
            await worker.hear(Joined)
            counters = RequestCounters(worker.page, OwnCatalog())
            counters.failed("m", "oip_http", "NOT_FOUND", 0.001, 10, "r")
            counters.connections("oip_http", 1)
        workers[2].die()
        await until(lambda: len(pool) == 2)
        replaced = StandIn(2, 2)
        workers.append(replaced)
        replaced.attach(pool)

        text = await Scrapes(sources).render()
    finally:
        transactions.close()
        pool.close()
        for worker in workers:
            worker.close()

    samples = _samples(text)
    at = {"model": "_unknown", "version": "", "protocol": "oip_http"}
    assert _value(samples, "anabranch_requests_total", **at, code="NOT_FOUND") == 3
    assert _value(samples, "anabranch_connections", protocol="oip_http") == 2  # of the living
    assert _value(samples, "anabranch_worker_restarts_total", reason="exited") == 1
    assert _value(samples, "anabranch_worker_restarts_total", reason="unresponsive") == 0
    assert _value(samples, "anabranch_workers", state="serving") == 1
    assert _value(samples, "anabranch_workers", state="draining") == 0
    kind = {"model": "m", "kind": "version"}
    assert _value(samples, "anabranch_reloads_total", **kind, result="ok") == 1
    assert _value(samples, "anabranch_reloads_total", **kind, result="failed") == 1
    assert _value(samples, "anabranch_reload_failures_total", model="m", reason="checksum") == 1
    duration = "anabranch_reload_duration_seconds"
    assert _value(samples, f"{duration}_sum", **kind, phase="building") == 0.3
    assert _value(samples, f"{duration}_bucket", **kind, phase="warming", le="0.02") == 1
    assert _value(samples, "anabranch_publish_to_served_seconds_sum", **kind) == 3
    assert _value(samples, "anabranch_model_ready", model="m") == 1
    assert _value(samples, "anabranch_snapshot_version", model="m") == 7
    applied = "anabranch_snapshot_applied_timestamp_seconds"
    assert _value(samples, applied, model="m") == 1764417661.0
    assert not [name for name, _ in samples if name == "anabranch_snapshot_step"]  # not said
    for process in ("0", "1", "2", "supervisor"):
        assert _value(samples, "process_threads", worker=process) >= 1
    assert ("process_threads", (("worker", "loader"),)) not in samples
    assert [name for name, _ in samples if name == "anabranch_build_info"]
    known = {name for name, _ in samples}
    assert {"anabranch_requests_total", "process_open_fds"} <= known & set(METRICS)
