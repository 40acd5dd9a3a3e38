from anabranch_runtime.counters import Series
from anabranch_server.supervisor.vanishing import Vanishing


def _series(**labels: str) -> Series:
    return Series("counter", "c", tuple(sorted(labels.items())), (1.0,), (), 1.0, 0)


OLD, NEW = _series(model="m", version="1"), _series(model="m", version="2")
ANY = _series(model="m", version="")


def _replaced() -> Vanishing:
    """Version 2 took the place of version 1 at second 100."""
    vanishing = Vanishing(after_s=300.0)
    vanishing.loaded("m", [1], 0.0)
    vanishing.loaded("m", [2], 100.0)
    return vanishing


def test_a_version_vanishes_some_minutes_after_it_was_unloaded() -> None:
    vanishing = _replaced()

    assert not vanishing.is_over(OLD, 399.0)
    assert vanishing.is_over(OLD, 400.0)
    assert not vanishing.is_over(NEW, 1e6)
    assert not vanishing.is_over(ANY, 1e6)


def test_thousands_of_versions_leave_nothing_behind() -> None:
    vanishing = Vanishing(after_s=300.0)
    for version in range(5000):
        vanishing.loaded("m", [version], 60.0 * version)

    assert len(vanishing) <= 20


def test_a_version_that_comes_back_is_shown_again() -> None:
    vanishing = _replaced()
    vanishing.loaded("m", [1, 2], 500.0)

    assert not vanishing.is_over(OLD, 501.0)

    vanishing.loaded("m", [2], 600.0)
    assert not vanishing.is_over(OLD, 899.0)
    assert vanishing.is_over(OLD, 900.0)


def test_a_model_that_is_gone_vanishes_with_all_its_series() -> None:
    vanishing = _replaced()

    vanishing.loaded("m", None, 200.0)

    assert not vanishing.is_over(ANY, 499.0)
    assert all(vanishing.is_over(series, 500.0) for series in (OLD, NEW, ANY, _series(model="m")))


def test_what_was_unloaded_before_anybody_looked_begins_its_time_when_seen() -> None:
    vanishing = Vanishing(after_s=300.0)

    assert not vanishing.is_over(OLD, 1000.0)
    assert vanishing.is_over(OLD, 1300.0)


def test_series_without_a_model_stay() -> None:
    vanishing = Vanishing(after_s=0.0)

    assert not vanishing.is_over(_series(protocol="oip_http"), 1e6)
    assert not vanishing.is_over(_series(model="_unknown", version=""), 1e6)


def test_failures_of_a_model_without_versions_stay() -> None:
    vanishing = Vanishing(after_s=300.0)
    vanishing.loaded("m", (), 0.0)

    assert not vanishing.is_over(ANY, 1e6)
