"""The script of S1 to S9 and S11 to S13 in its quick form, and what it measures with."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import lookup_yardstick
import peers.store
import rows
from anabranch_testing.benchmark_scripts import run_quick
from anabranch_testing.corpus import is_required
from lookup_material import aligned, check, keys_of, numbers_of, zipf
from lookup_rounds import best, interleaved, ratios
from peers.store import Missing, peer

SCRIPT = Path(__file__).resolve().parents[1] / "lookup.py"
PEERS = frozenset({"S3", "S4", "X10"})


def measured(folder: Path, only: str) -> Sequence[rows.Row]:
    written = rows.read(run_quick(SCRIPT, folder, "--only", only))
    assert written.quick
    return written.rows


@pytest.mark.slow
def test_the_quick_form_measures_every_row_but_those_of_peers_that_are_not_here(
    tmp_path: Path,
) -> None:
    wanted = ["S3", "S4", "S6", "S7", "S8", "S9", "S11", "S12", "S13", "X10"]

    written = measured(tmp_path, ",".join(wanted))

    assert {row.id for row in written} == set(wanted)
    absent = [row for row in written if row.value is None]
    assert {row.id for row in absent} <= PEERS
    assert all("make peers" in str(row.reason) or "installed" in str(row.reason) for row in absent)
    assert [row.id for row in written].count("S3") == 8


@pytest.mark.slow
def test_the_quick_form_compares_with_the_limit_and_with_no_versions(tmp_path: Path) -> None:
    # Building it takes 100 s of processor time: only where somebody has, or asks for it.
    if not (lookup_yardstick.is_built() or is_required("random_reads")):
        pytest.skip("the yardstick is not built; it takes minutes: lookup.py --quick --only S1")

    written = measured(tmp_path, "S1,S2,S5")

    ids = [row.id for row in written]
    assert (ids.count("S1"), ids.count("S2"), ids.count("S5")) == (6, 6, 1)
    assert all(row.value is not None for row in written)


def test_an_unknown_row_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", "S3,S99"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert "S99: expected some of" in done.stderr


def test_keys_are_distinct_over_rows_and_tables() -> None:
    keys = np.concatenate([keys_of(table, np.arange(10_000)) for table in range(3)])

    assert len(np.unique(keys)) == 30_000


def test_rows_are_drawn_as_often_as_the_continuous_distribution_says() -> None:
    drawn = zipf(np.random.default_rng(1), 100, 1_000_000)

    seen = np.bincount(drawn, minlength=100) / len(drawn)
    edges = np.arange(1, 102) ** -0.05  # the integral of x ** -1.05, but for a factor
    expected = np.diff(edges) / (edges[-1] - edges[0])
    # The rarest row is drawn 2,000 times, 2.2% standard deviation.
    np.testing.assert_allclose(seen, expected, rtol=0.12)


def test_arrays_begin_at_a_cache_line() -> None:
    array = aligned(1001, 3)

    assert array.shape == (1001, 3)
    assert array.ctypes.data % 64 == 0
    assert not array.any()


def test_wrong_answers_are_not_measured() -> None:
    right = numbers_of(np.arange(4), 8)

    check("a lookup", right.copy(), right)
    with pytest.raises(RuntimeError, match="a lookup answers other numbers"):
        check("a lookup", right + 0.25, right)


def test_what_is_compared_takes_turns() -> None:
    order: list[str] = []

    times = interleaved(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3, least_s=0
    )

    assert order[-6:] == ["a", "b", "a", "b", "a", "b"]
    assert [len(times[name]) for name in ("a", "b")] == [3, 3]
    assert ratios([2.0, 3.0], [1.0, 6.0]) == [2.0, 0.5]


def test_short_work_is_repeated_until_it_can_be_timed() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        end = time.thread_time() + 0.0005
        while time.thread_time() < end:
            pass

    [once] = interleaved({"work": work}, 1, least_s=0.02)["work"]

    assert calls > 10
    assert 0.0005 <= once < 0.01


def test_the_fastest_is_found() -> None:
    assert best({1: lambda: sum(range(100_000)), 2: lambda: None}) == 2


def test_a_peer_that_is_not_installed_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers.store, "_ENVIRONMENT", tmp_path)

    with pytest.raises(Missing, match="make peers"):
        peer("lmdb")
