from pathlib import Path

import pytest

from anabranch_runtime.counters import CountersReader, Series
from anabranch_server.metrics import RequestCounters, create_page
from anabranch_server.metrics.sums import added_up
from anabranch_server.metrics.totals import Totals
from anabranch_testing.catalogs import OwnCatalog

LAUNCH = "0123456789abcdef"


def _counter(value: float, name: str = "c", **labels: str) -> Series:
    return Series("counter", name, tuple(sorted(labels.items())), (value,), (), value, 0)


def _histogram(*values: float, bounds: tuple[float, ...] = (1.0, 2.0)) -> Series:
    return Series("histogram", "h", (), values, bounds, sum(values) * 1.5, int(sum(values)))


def _gauge(value: float) -> Series:
    return Series("gauge", "g", (), (value,), (), value, 0)


def test_series_of_the_same_labels_are_added() -> None:
    mine = [_counter(1, model="a"), _counter(2, model="b"), _histogram(1, 0, 2), _gauge(3)]
    yours = [_histogram(0, 1, 1), _counter(5, model="b"), _gauge(4)]

    sums = added_up([mine, yours])

    assert sums == [
        _counter(1, model="a"),
        _counter(7, model="b"),
        Series("histogram", "h", (), (1, 1, 3), (1.0, 2.0), 7.5, 5),
        _gauge(7),
    ]


def test_histograms_of_other_buckets_are_not_mixed() -> None:
    mine, yours = _histogram(1, 0, 2), _histogram(1, 1, 1, bounds=(1.0, 3.0))

    assert added_up([[mine], [yours]]) == [mine]


def test_what_the_dead_counted_is_kept_but_not_what_they_had(tmp_path: Path) -> None:
    totals = Totals(tmp_path / "totals", LAUNCH)

    totals.ended(0, "exited", [_counter(3), _gauge(9), _histogram(1, 0, 0)])
    totals.ended(1, "exited", [_counter(4)])

    assert totals.all_series() == [_counter(7), _histogram(1, 0, 0)]


def test_totals_outlive_the_process_but_not_the_launcher(tmp_path: Path) -> None:
    path = tmp_path / "totals"
    totals = Totals(path, LAUNCH, lambda: [_counter(10, "own")])
    totals.started(0, 1)
    totals.ended(0, "unresponsive", [_counter(3)])
    totals.started(0, 2)

    again = Totals(path, LAUNCH, lambda: [_counter(1, "own")])
    again.started(0, 2)  # it still lives

    assert again.all_series() == [_counter(3), _counter(11, "own")]
    assert dict(again.restarts) == {"unresponsive": 1}
    assert Totals(path, "f" * 16).all_series() == []


def test_lives_that_nobody_saw_are_counted(tmp_path: Path) -> None:
    totals = Totals(tmp_path / "totals", LAUNCH)
    totals.started(0, 1)
    totals.ended(0, "stale_lease", [])

    totals.started(0, 4)

    assert dict(totals.restarts) == {"stale_lease": 1, "exited": 2}


def test_what_this_process_counts_is_written_where_it_changed(tmp_path: Path) -> None:
    path, own = tmp_path / "totals", [_counter(1)]
    totals = Totals(path, LAUNCH, lambda: own)
    totals.save_if_changed()
    path.unlink()

    totals.save_if_changed()
    assert not path.exists()

    own[0] = _counter(2)
    totals.save_if_changed()
    assert Totals(path, LAUNCH).all_series() == [_counter(2)]


def test_a_damaged_file_is_said_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "totals"
    path.write_bytes(b"\xc1 no msgpack")

    assert Totals(path, LAUNCH).all_series() == []
    assert "cannot be read" in caplog.text


def test_a_file_that_cannot_be_written_costs_no_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    totals = Totals(tmp_path / "file" / "totals", LAUNCH)

    totals.ended(0, "exited", [_counter(3)])

    assert totals.all_series() == [_counter(3)]
    assert "cannot be kept" in caplog.text


def test_a_folder_that_somebody_took_away_comes_back(tmp_path: Path) -> None:
    totals = Totals(tmp_path / "run" / "totals", LAUNCH)

    totals.ended(0, "exited", [_counter(3)])

    assert Totals(tmp_path / "run" / "totals", LAUNCH).all_series() == [_counter(3)]


def test_series_can_be_pruned(tmp_path: Path) -> None:
    totals = Totals(tmp_path / "totals", LAUNCH)
    totals.ended(0, "exited", [_counter(3), _counter(4, "d")])

    totals.prune(lambda series: series.name == "c")

    assert totals.all_series() == [_counter(4, "d")]


def test_pages_of_two_workers_add_up() -> None:
    pages = [create_page(), create_page()]
    for page in pages:
        counters = RequestCounters(page, OwnCatalog())
        counters.failed("x", "oip_http", "NOT_FOUND", 0.001, 10, "r")

    sums = added_up([CountersReader(page.fd).read() for page in pages])

    (requests,) = [one for one in sums if one.name == "anabranch_requests_total"]
    assert requests.values == (2.0,)
    (durations,) = [one for one in sums if one.name == "anabranch_request_duration_seconds"]
    assert durations.count == 2
