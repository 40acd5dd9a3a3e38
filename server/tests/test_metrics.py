import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.catalog import ServingState
from anabranch_runtime.counters import CountersPage, CountersReader
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import GroupSettings
from anabranch_server.metrics import (
    METRICS,
    ModelCounters,
    RequestCounters,
    Value,
    create_page,
    exposition,
    process_figures,
)
from anabranch_testing.catalogs import OwnCatalog
from anabranch_testing.doors import example_of
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import Collector, Counts
from anabranch_testing.looked_up import Asked, looked_up_model, open_store, view_of
from anabranch_wire.snapshots import Snapshot

Labels = dict[str, str]


@dataclass
class Parts:
    page: CountersPage
    catalog: OwnCatalog
    served: ServedVersion
    requests: RequestCounters

    def score(self, rows: int) -> Ticket:
        """Run a request through the group, as a door would."""
        inputs = (np.zeros((rows, 4), np.float32),)
        sink = Collector()
        deadline = time.monotonic() + 20
        ticket = Ticket(ScoreRequest(inputs, rows, (), deadline), self.served, sink)
        self.served.group.submit(ticket)
        (finished,) = sink.wait(1)
        return finished

    def value(self, sample: str, **labels: str) -> float:
        """Return the value of one sample of a scrape."""
        values = [value for name, at, value in self.samples() if name == sample and at == labels]
        assert len(values) == 1, f"{sample} {labels}: {values}"
        return values[0]

    def text(self) -> str:
        """Return the text of a scrape."""
        return exposition(CountersReader(self.page.fd).read(), ()).decode()

    def samples(self) -> list[tuple[str, Labels, float]]:
        """Return every sample of a scrape, as Prometheus reads it."""
        text = self.text()
        return [
            (sample.name, dict(sample.labels), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    page = create_page()
    catalog = OwnCatalog()
    counters = ModelCounters(page, "ctr", 0)
    group = SessionGroup("ctr", GroupSettings(), OrtCpuBackend(), counters)
    model = scale_model(tmp_path)
    served = group.load(Snapshot("ctr", 42, 17), model, [example_of(model)], warm_rounds=1)
    catalog.publish("ctr", ServingState({42: served}, default=42))
    yield Parts(page, catalog, served, RequestCounters(page, catalog))
    group.close()


def test_a_scored_request_counts_everywhere_it_should(parts: Parts) -> None:
    ticket = parts.score(rows=3)
    received = ticket.submitted - 0.0005
    written = received + 0.0042

    parts.requests.scored(ticket, "oip_http", received, written, 100, 50, "r")

    version = {"model": "ctr", "version": "42"}
    protocol = {**version, "protocol": "oip_http"}
    assert parts.value("anabranch_requests_total", **protocol, code="OK") == 1
    assert parts.value("anabranch_rows_total", **version) == 3
    duration = "anabranch_request_duration_seconds"
    assert parts.value(f"{duration}_count", **protocol) == 1
    assert parts.value(f"{duration}_sum", **protocol) == pytest.approx(0.0042)
    assert parts.value(f"{duration}_bucket", **protocol, le="0.003") == 0
    assert parts.value(f"{duration}_bucket", **protocol, le="0.005") == 1
    assert parts.value(f"{duration}_bucket", **protocol, le="+Inf") == 1
    queue = parts.value("anabranch_queue_duration_seconds_sum", **version)
    compute = parts.value("anabranch_compute_duration_seconds_sum", **version)
    assert queue == pytest.approx(ticket.started - ticket.submitted)
    assert compute == pytest.approx(ticket.finished - ticket.started)
    stages = {
        stage: parts.value("anabranch_stage_duration_seconds_sum", model="ctr", stage=stage)
        for stage in ("decode", "run", "encode")
    }
    assert stages["decode"] == pytest.approx(0.0005)
    assert stages["run"] == compute
    assert stages["encode"] == pytest.approx(written - ticket.finished)
    assert sum(stages.values()) + queue == pytest.approx(0.0042)
    assert parts.value("anabranch_request_bytes_sum", protocol="oip_http") == 100
    assert parts.value("anabranch_response_bytes_sum", protocol="oip_http") == 50


def test_lookups_are_a_stage_of_models_that_have_them_and_no_part_of_the_run(
    parts: Parts, tmp_path: Path
) -> None:
    stage = "anabranch_stage_duration_seconds"
    plain = parts.score(rows=3)
    parts.requests.scored(plain, "oip_http", plain.submitted, plain.finished, 1, 1, "r")
    model, view = looked_up_model(tmp_path), view_of(open_store(tmp_path / "store"))
    group = SessionGroup("looked", GroupSettings(), OrtCpuBackend(), Counts())
    served = group.load(Snapshot("looked", 1), model, [example_of(model)], store=view)
    sink = Collector()
    asked = Asked.random(np.random.default_rng(1), 5).named()
    group.submit(Ticket(ScoreRequest(*served.rules.order(asked), (), 1e18), served, sink))
    (ticket,) = sink.wait(1)

    parts.requests.scored(ticket, "oip_http", ticket.submitted, ticket.finished + 0.001, 1, 1, "r")

    group.close()
    stages = {(at["model"], at["stage"]) for name, at, _ in parts.samples() if stage in name}
    assert {one for model, one in stages if model == "ctr"} == {"decode", "run", "encode"}
    times = {
        one: parts.value(f"{stage}_sum", model="looked", stage=one) for one in ("lookup", "run")
    }
    assert times["lookup"] == pytest.approx(ticket.lookup_s) != 0
    assert sum(times.values()) == pytest.approx(ticket.finished - ticket.started)


def test_batches_count_by_version_and_executor(parts: Parts) -> None:
    parts.score(rows=3)
    parts.score(rows=5)

    at = {"model": "ctr", "version": "42"}
    assert parts.value("anabranch_batch_rows_sum", **at) == 8
    assert parts.value("anabranch_batch_rows_count", **at) == 2
    assert parts.value("anabranch_batch_requests_sum", **at) == 2
    assert parts.value("anabranch_executor_busy_seconds_total", model="ctr", executor="w0e0") > 0


def test_failures_count_by_code_and_only_known_models_get_a_name(parts: Parts) -> None:
    for name in ("ctr", "nobody", "x" * 5000, 'a"b\n', "_unknown"):
        parts.requests.failed(name, "oip_grpc", "INVALID_ARGUMENT", 0.001, 10, "r")

    at = {"version": "", "protocol": "oip_grpc", "code": "INVALID_ARGUMENT"}
    assert parts.value("anabranch_requests_total", model="ctr", **at) == 1
    assert parts.value("anabranch_requests_total", model="_unknown", **at) == 4
    models = {labels["model"] for _, labels, _ in parts.samples() if "model" in labels}
    assert models == {"ctr", "_unknown"}


def test_shed_and_dropped_start_at_zero(parts: Parts) -> None:
    counters = ModelCounters(parts.page, "ctr", 0)
    shed = {"model": "ctr", "reason": "queue_full"}
    assert parts.value("anabranch_requests_shed_total", **shed) == 0

    counters.shed("queue_full")
    counters.dropped("expired")

    assert parts.value("anabranch_requests_shed_total", **shed) == 1
    dropped = {"model": "ctr", "reason": "expired"}
    assert parts.value("anabranch_requests_dropped_total", **dropped) == 1


def test_connections_go_up_and_down(parts: Parts) -> None:
    for change in (1, 1, -1):
        parts.requests.connections("oip_http", change)
    parts.requests.connection_cut("oip_http", "slow_reader")

    assert parts.value("anabranch_connections", protocol="oip_http") == 1
    cut = {"protocol": "oip_http", "reason": "slow_reader"}
    assert parts.value("anabranch_connections_cut_total", **cut) == 1


def test_values_of_the_moment_stand_beside_what_was_counted() -> None:
    text = exposition((), [Value("anabranch_model_ready", ("ctr",), True)]).decode()

    assert 'anabranch_model_ready{model="ctr"} 1.0' in text


def test_process_figures_are_plausible() -> None:
    figures = process_figures()

    assert figures["process_resident_memory_bytes"] > 10e6
    assert figures["process_cpu_seconds_total"] > 0
    assert figures["process_open_fds"] >= 3
    assert abs(figures["process_start_time_seconds"] - time.time()) < 3600
    assert process_figures(pid=2**22 + 1) == {}


def test_every_shown_series_is_in_the_table_with_its_labels(parts: Parts) -> None:
    ticket = parts.score(rows=1)
    parts.requests.scored(ticket, "oip_http", 0.0, 0.001, 1, 1, "r")
    text = parts.text()

    seen = set()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        metric = METRICS[name]
        assert family.type == metric.kind
        assert family.documentation == metric.help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)
        seen.add(name)
    assert seen == set(METRICS)


def test_latency_buckets_are_those_of_the_contract() -> None:
    wanted = (
        "0.0001 0.0002 0.0003 0.0005 0.00075 0.001 0.0015 0.002 0.003 0.005 0.0075 "
        "0.01 0.02 0.03 0.05 0.1 0.2 0.5 1 2 5"
    )
    assert METRICS["anabranch_request_duration_seconds"].bounds == tuple(
        float(bound) for bound in wanted.split()
    )
    assert METRICS["anabranch_batch_rows"].bounds == tuple(2.0**power for power in range(13))


def test_nothing_is_lost_between_threads(parts: Parts) -> None:
    ticket = parts.score(rows=2)

    def count() -> None:
        for _ in range(500):
            parts.requests.scored(ticket, "oip_http", 0.0, 0.001, 1, 1, "r")
            parts.requests.failed("ctr", "oip_http", "NOT_FOUND", 0.001, 1, "r")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    at = {"model": "ctr", "protocol": "oip_http"}
    assert parts.value("anabranch_requests_total", **at, version="42", code="OK") == 2000
    assert parts.value("anabranch_requests_total", **at, version="", code="NOT_FOUND") == 2000
    assert parts.value("anabranch_rows_total", model="ctr", version="42") == 4000


def test_a_full_page_loses_series_but_not_requests(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = parts.score(rows=1)
    small = CountersPage.create(4096)
    requests = RequestCounters(small, parts.catalog)

    for protocol in ("oip_http", "oip_grpc", "eas"):
        requests.scored(ticket, protocol, 0.0, 0.001, 1, 1, "r")
        requests.connections(protocol, 1)

    events = [getattr(record, "event", None) for record in caplog.records]
    assert events == ["metrics_full"]
