"""Runs merged in the background: few are left, each row is written seldom, and nobody waits."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.deltas.compaction import Compactor, next_merge
from anabranch_model_store.deltas.lineages import lineage_name, marks_of
from anabranch_model_store.deltas.run_cache import RunCache
from anabranch_model_store.deltas.run_writing import RunHead
from anabranch_model_store.deltas.runs import RunFile, RunTable, sorted_rows
from anabranch_model_store.deltas.targets import RowChanges, Run

IDENTITY = "sha256:" + "ab" * 32
PATH = Path("x")


def rows(last: int) -> RunTable:
    """Return a row of its own for a delta, and one that all have."""
    values = np.full((2, 1), last, np.float32)
    return sorted_rows(0, RowChanges(np.array([0, last]), values, np.empty(0, np.int64)))


def merged(runs: list[Run], on_merge: Callable[[int], None] = lambda deltas: None) -> list[Run]:
    """Return runs as they are when nothing is left to be merged."""
    while chosen := next_merge(runs):
        at = runs.index(chosen[0])
        assert tuple(runs[at : at + len(chosen)]) == chosen
        on_merge(chosen[-1].last - chosen[0].first + 1)
        runs = [*runs[:at], Run(PATH, chosen[0].first, chosen[-1].last), *runs[at + len(chosen) :]]
    return runs


def test_a_day_of_deltas_leaves_few_runs_and_writes_little() -> None:
    runs: list[Run] = []
    most, written = 0, 0

    def count(deltas: int) -> None:
        nonlocal written
        written += deltas

    for number in range(1, 86_401):
        runs = merged([*runs, Run(PATH, number, number)], count)
        most = max(most, len(runs))
    assert most <= 7 * 6
    assert len(runs) <= 40
    assert written <= 5 * 86_400, "beside the one time when a delta is applied"


@settings(max_examples=100)
@given(st.lists(st.integers(1, 600), max_size=60))
def test_few_runs_are_left_whatever_they_hold(lengths: Sequence[int]) -> None:
    runs: list[Run] = []
    for length in lengths:
        first = runs[-1].last + 1 if runs else 1
        runs = merged([*runs, Run(PATH, first, first + length - 1)])
        levels = len(np.base_repr(max(1, runs[-1].last), 8))
        assert len(runs) <= 7 * levels


def test_a_short_run_before_long_ones_is_taken_along() -> None:
    spans = [(1, 1), *((2 + 8 * n, 9 + 8 * n) for n in range(7))]
    chosen = next_merge([Run(PATH, first, last) for first, last in spans])
    assert (len(chosen), chosen[0].first, chosen[-1].last) == (8, 1, 57)


# --- the thread ----------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path) -> RunCache:
    return RunCache(tmp_path / "deltas", 1 << 30)


@pytest.fixture
def compactor(cache: RunCache) -> Iterator[Compactor]:
    made = Compactor(cache)
    yield made
    made.close()


def put(cache: RunCache, numbers: range, mark: int = 7) -> list[Run]:
    """Keep a run for each delta."""
    heads = [RunHead(IDENTITY, n, n, marks=marks_of([(n, mark)])) for n in numbers]
    return [cache.put(head, [[rows(head.last)]]) for head in heads]


def cover(cache: RunCache, last: int) -> tuple[Run, ...]:
    return cache.cover(IDENTITY, 1, last, lambda run, marks, last: True)


def spans(cache: RunCache, last: int) -> list[tuple[int, int]]:
    return [(run.first, run.last) for run in cover(cache, last)]


def test_merged_runs_appear_in_the_cache(cache: RunCache, compactor: Compactor) -> None:
    compactor.offer(IDENTITY, put(cache, range(1, 68)))
    compactor.settle()

    assert spans(cache, 67) == [(1, 64), (65, 65), (66, 66), (67, 67)]
    (table,) = RunFile.open(cover(cache, 64)[0].path).tables
    assert table.keys.tolist() == list(range(65))
    assert table.values[0, 0] == 64


def test_only_runs_of_what_was_applied_are_merged(cache: RunCache, compactor: Compactor) -> None:
    put(cache, range(1, 9), mark=1)
    own = put(cache, range(1, 9), mark=2)
    compactor.offer(IDENTITY, own)
    compactor.settle()

    (run,) = cover(cache, 8)
    assert RunFile.open(run.path).marks["mark"].tolist() == [2] * 8


def test_nothing_is_merged_while_it_is_held_up(cache: RunCache, compactor: Compactor) -> None:
    runs = put(cache, range(1, 9))
    with compactor.held_up():
        compactor.offer(IDENTITY, runs)
        settled = threading.Thread(target=compactor.settle)
        settled.start()
        settled.join(0.2)
        assert settled.is_alive()
        assert len(spans(cache, 8)) == 8
    settled.join(30)
    assert not settled.is_alive()
    assert spans(cache, 8) == [(1, 8)]


def test_an_end_gives_up_what_is_at_work(cache: RunCache) -> None:
    compactor = Compactor(cache)
    runs = put(cache, range(1, 9))
    held = compactor.held_up()
    with held:
        compactor.offer(IDENTITY, runs)
        compactor.close()
    assert len(spans(cache, 8)) == 8
    assert not list(cover(cache, 8)[0].path.parent.glob(".run-*"))


def test_runs_that_cannot_be_merged_are_left_for_the_next_time(
    cache: RunCache, compactor: Compactor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = put(cache, range(1, 9))
    (folder,) = (tmp_path / "deltas").iterdir()
    marks = marks_of([(number, 7) for number in range(1, 9)])
    hindrance = folder / f"00000001-00000008-{lineage_name(marks)}.run"
    hindrance.mkdir()
    (hindrance / "x").touch()
    compactor.offer(IDENTITY, runs)
    compactor.settle()
    assert "runs stay as they are" in caplog.text
    (hindrance / "x").unlink()
    hindrance.rmdir()
    compactor.offer(IDENTITY, runs)
    compactor.settle()
    assert spans(cache, 8) == [(1, 8)]


def test_what_a_killed_process_left_is_cleared_and_made_again(
    cache: RunCache, compactor: Compactor, tmp_path: Path
) -> None:
    runs = put(cache, range(1, 9))
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from anabranch_model_store.deltas.run_cache import RunCache\n"
        "cache = RunCache(Path(sys.argv[1]), 1)\n"
        "runs = cache.cover(sys.argv[2], 1, 8, lambda *_: True)\n"
        "cache.merge(sys.argv[2], runs, lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    folder = tmp_path / "deltas"
    killed = subprocess.run([sys.executable, "-c", code, folder, IDENTITY], check=False)
    assert killed.returncode == -9
    assert len(list(folder.glob("*/.run-*"))) == 1

    cache.prune([])
    assert not list(folder.glob("*/.run-*"))
    compactor.offer(IDENTITY, runs)
    compactor.settle()
    assert spans(cache, 8) == [(1, 8)]
    assert os.access(folder, os.R_OK)
