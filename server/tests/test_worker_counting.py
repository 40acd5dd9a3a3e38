import time
from pathlib import Path

import numpy as np

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.catalog import ServingState
from anabranch_runtime.counters import CountersReader, Series
from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import GroupSettings
from anabranch_server.worker.counting import Counting
from anabranch_server.worker.retirement import Retired
from anabranch_testing.catalogs import OwnCatalog
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import Collector, served_version
from anabranch_wire.snapshots import Snapshot

RELOADS = 10_000


def ticket_for(folder: Path) -> Ticket:
    """A finished ticket of version 1 of model `m`."""
    request = ScoreRequest((np.zeros((3, 4), np.float32),), 3, (), time.monotonic() + 60)
    ticket = Ticket(request, served_version(scale_model(folder)), Collector())
    ticket.submitted = ticket.started = ticket.finished = time.monotonic()
    return ticket


def series_of(counting: Counting, **labels: str) -> list[Series]:
    """Series of the page that have these labels."""
    return [
        series
        for series in CountersReader(counting.page.fd).read()
        if labels.items() <= dict(series.labels).items()
    ]


def test_series_of_an_unloaded_version_leave_after_five_minutes(tmp_path: Path) -> None:
    counting = Counting(0, OwnCatalog())
    counting.requests.scored(ticket_for(tmp_path), "oip_http", 0.0, 0.1, 1, 1, "")
    counting.model("m").batch(0, 1, 3, 1, 0.1)
    counting.model("m").batch(0, 2, 3, 1, 0.1)
    counting.retirement.unloaded(Retired("m", 1), 1000.0)

    counting.retire(1299.0)
    assert {series.name for series in series_of(counting, version="1")} == {
        "anabranch_batch_requests",
        "anabranch_batch_rows",
        "anabranch_compute_duration_seconds",
        "anabranch_queue_duration_seconds",
        "anabranch_request_duration_seconds",
        "anabranch_requests_total",
        "anabranch_rows_total",
    }
    counting.retire(1300.0)

    assert series_of(counting, version="1") == []
    assert len(series_of(counting, version="2")) == 2
    assert [one.values for one in busy(counting)] == [(0.2,)]


def test_a_version_that_comes_back_counts_from_nothing(tmp_path: Path) -> None:
    counting = Counting(0, OwnCatalog())
    for _ in range(2):
        counting.requests.scored(ticket_for(tmp_path), "oip_http", 0.0, 0.1, 1, 1, "")
        counting.retirement.unloaded(Retired("m", 1), 0.0)
        counting.retire(300.0)
        assert series_of(counting, model="m", version="1") == []
    counting.requests.scored(ticket_for(tmp_path), "oip_http", 0.0, 0.1, 1, 1, "")

    (rows,) = [one for one in series_of(counting, model="m") if one.name == "anabranch_rows_total"]
    assert rows.values == (3.0,)


def test_all_of_a_model_leaves_with_it(tmp_path: Path) -> None:
    catalog = OwnCatalog()
    counting = Counting(0, catalog)
    group = SessionGroup("m", GroupSettings(), OrtCpuBackend(), counting.model("m"))
    model = scale_model(tmp_path)
    group.load(Snapshot("m", 1), model, [{"x": np.ones((1, 4), np.float32)}])
    counting.refresh("m", [group])
    counting.model("m").shed("queue_full")
    counting.requests.scored(ticket_for(tmp_path / "other"), "oip_http", 0.0, 0.1, 1, 1, "")
    assert series_of(counting, model="m", stage="decode")
    assert series_of(counting, model="m")
    group.close()
    counting.retirement.unloaded(Retired("m"), 0.0)

    counting.retire(300.0)

    assert series_of(counting, model="m") == []


def test_a_model_that_comes_back_is_counted_at_the_door_again(tmp_path: Path) -> None:
    catalog = OwnCatalog()
    served = served_version(scale_model(tmp_path))
    catalog.publish("m", ServingState({1: served}, default=1))
    counting = Counting(0, catalog)
    for _ in range(2):
        counting.requests.shed("m", "client_limit")

        (shed,) = series_of(counting, model="m")
        assert shed.values == (1.0,)
        counting.retirement.unloaded(Retired("m"), 0.0)
        counting.retire(300.0)


def test_ten_thousand_versions_leave_room_for_more(tmp_path: Path) -> None:
    counting = Counting(0, OwnCatalog())
    ticket = ticket_for(tmp_path)
    for number in range(1, RELOADS + 1):
        object.__setattr__(ticket.version, "snapshot", Snapshot("m", number))
        counting.requests.scored(ticket, "oip_http", 0.0, 0.1, 1, 1, "")
        counting.model("m").batch(0, number, 3, 1, 0.1)
        counting.retirement.unloaded(Retired("m", number), float(number))
        if number % 10 == 0:  # every 10 s, as a worker does
            counting.retire(float(number))

    versions = {dict(one.labels).get("version") for one in series_of(counting, model="m")}
    assert str(RELOADS) in versions
    assert len(versions) < 320


def busy(counting: Counting) -> list[Series]:
    """The series that all versions share."""
    return [
        series
        for series in series_of(counting, model="m")
        if series.name == "anabranch_executor_busy_seconds_total"
    ]
