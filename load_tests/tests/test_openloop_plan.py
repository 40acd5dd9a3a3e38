"""A result whose figures may be the loop's own says so, and its text shows every failure."""

from openloop import Counts, Histogram, Result
from openloop.plan import warnings
from openloop.text import describe


def counts(latency_ms: float, slip_ms: float) -> Counts:
    latencies, slips = Histogram(), Histogram()
    latencies.record(round(latency_ms * 1e6))
    slips.record(round(slip_ms * 1e6))
    return Counts(
        requests=4,
        outcomes={"ok": 1, "status": 1, "reset": 2},
        statuses={200: 1, 503: 1},
        ok=latencies.summary(),
        latencies={503: latencies.summary()},
        refused=latencies.summary(),
        slip=slips.summary(),
        wait=slips.summary(),
    )


def test_a_loop_in_time_has_nothing_to_warn_of() -> None:
    assert warnings(counts(10, 0.5), 0.5) == ()


def test_a_loop_that_fills_its_core_warns() -> None:
    (warning,) = warnings(counts(10, 0.5), 0.95)
    assert "95%" in warning


def test_a_late_loop_warns_with_both_figures() -> None:
    (warning,) = warnings(counts(10, 4), 0.5)
    assert "4.0" in warning
    assert "10.0" in warning


def test_the_text_names_what_failed_and_what_to_doubt() -> None:
    seen = counts(10, 4)
    result = Result(
        rate=2, seconds=2, elapsed_s=2, counts=seen, ok_per_s=0.5, opened=1, cpu_share=0.1,
        warnings=warnings(seen, 0.1),
    )  # fmt: skip

    text = describe(result)
    assert "status 503  1, p50 10.0" in text
    assert "no answer   2 reset" in text
    assert "warning     the loop came late" in text
