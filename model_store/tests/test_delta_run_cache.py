"""Runs in the cache: the fewest that cover, none that is damaged, and no more than are needed."""

import fcntl
import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.deltas.lineages import MARK, Marks, lineage_name
from anabranch_model_store.deltas.run_building import RunBuilding
from anabranch_model_store.deltas.run_cache import RunCache, fewest
from anabranch_model_store.deltas.run_writing import RunHead
from anabranch_model_store.deltas.runs import RunFile, RunTable, sorted_rows
from anabranch_model_store.deltas.targets import RowChanges, Run

IDENTITY = "sha256:" + "ab" * 32


def rows(*keys: int, value: float = 0.0) -> RunTable:
    """Return rows of one number."""
    values = np.full((len(keys), 1), value, np.float32)
    return sorted_rows(0, RowChanges(np.array(keys, np.int64), values, np.empty(0, np.int64)))


def marks(first: int, last: int, mark: int = 7) -> Marks:
    """Return marks of deltas that follow each other."""
    return np.array([(number, mark) for number in range(first, last + 1)], MARK)


def put(cache: RunCache, first: int, last: int, mark: int = 7) -> Run:
    """Keep a run with a row for its last delta."""
    head = RunHead(IDENTITY, first, last, marks=marks(first, last, mark))
    return cache.put(head, [[rows(last)]])


def cover(cache: RunCache, first: int, last: int, identity: str = IDENTITY) -> tuple[Run, ...]:
    """Return the fewest runs, whatever they are made of."""
    return cache.cover(identity, first, last, lambda run, marks, last: True)


def spans(runs: tuple[Run, ...]) -> list[tuple[int, int]]:
    """Return what runs cover."""
    return [(run.first, run.last) for run in runs]


def age(run: Run, seconds: float) -> None:
    """Have a run used so long ago."""
    then = time.time() - seconds
    os.utime(run.path, (then, then))


@pytest.fixture
def cache(tmp_path: Path) -> RunCache:
    return RunCache(tmp_path / "deltas", 1 << 20)


@settings(max_examples=150)
@given(st.data())
def test_no_choice_of_runs_is_smaller_or_comes_farther(data: st.DataObject) -> None:
    found = data.draw(st.sets(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12))
    runs = [Run(Path("x"), first, last) for first, last in found if first <= last]
    first, last = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 9))

    chosen = fewest(runs, first, last)

    lengths = {first - 1: 0}
    for at in range(first - 1, last + 1):
        for run in runs:
            if at in lengths and run.first == at + 1 and run.last <= last:
                lengths[run.last] = min(lengths.get(run.last, 99), lengths[at] + 1)
    reached = chosen[-1].last if chosen else first - 1
    assert reached == max(lengths)
    assert len(chosen) == lengths[reached]
    assert all(one.last + 1 == two.first for one, two in pairwise(chosen))
    assert not chosen or chosen[0].first == first


def test_long_runs_cover_what_they_hold(cache: RunCache) -> None:
    for first, last in ((1, 1), (2, 2), (3, 3), (1, 2), (4, 6), (4, 4)):
        put(cache, first, last)
    assert spans(cover(cache, 1, 6)) == [(1, 2), (3, 3), (4, 6)]
    assert spans(cover(cache, 1, 5)) == [(1, 2), (3, 3), (4, 4)]
    assert spans(cover(cache, 2, 3)) == [(2, 2), (3, 3)]
    assert cover(cache, 5, 6) == ()
    assert cover(cache, 1, 6, "sha256:" + "cd" * 32) == ()


def test_the_folder_is_for_the_server_alone(cache: RunCache) -> None:
    run = put(cache, 1, 1)
    assert run.path.parent.stat().st_mode & 0o777 == 0o700
    assert run.path.name == f"00000001-00000001-{lineage_name(marks(1, 1))}.run"


@pytest.mark.parametrize("is_new", [True, False], ids=["after a restart", "in a running server"])
def test_a_damaged_run_is_not_used_and_goes(
    cache: RunCache, tmp_path: Path, *, is_new: bool
) -> None:
    good, bad = put(cache, 1, 1), put(cache, 2, 2)
    data = bytearray(bad.path.read_bytes())
    data[256] ^= 1  # of the first key
    if is_new:
        cache = RunCache(tmp_path / "deltas", 1 << 20)
        bad.path.write_bytes(data)
    else:
        bad.path.unlink()
    assert cover(cache, 1, 2) == (good,)
    assert not bad.path.exists()


def test_a_run_under_the_name_of_others_is_not_used(cache: RunCache, tmp_path: Path) -> None:
    run = put(cache, 1, 1)
    run.path.rename(run.path.with_name(f"00000001-00000004{run.path.name[17:]}"))
    assert cover(RunCache(tmp_path / "deltas", 1), 1, 4) == ()


def test_merged_runs_take_the_place_of_what_they_hold(cache: RunCache) -> None:
    runs = [put(cache, n, n) for n in (1, 2, 3)]
    merged = cache.merge(IDENTITY, runs)

    assert cover(cache, 1, 3) == (merged,)
    assert RunFile.open(merged.path).tables[0].keys.tolist() == [1, 2, 3]
    cache.prune([])
    assert all(run.path.exists() for run in runs), "somebody may be about to be told of them"
    for run in runs:
        age(run, 120)
    cache.prune([str(runs[1].path)])
    assert [run.path.exists() for run in (*runs, merged)] == [False, True, False, True]


def test_runs_of_other_deltas_of_the_same_numbers_stay_as_they_are(
    cache: RunCache, tmp_path: Path
) -> None:
    own, other = put(cache, 1, 2), put(cache, 1, 2, mark=8)
    longer, part = put(cache, 1, 4, mark=8), put(cache, 2, 3)
    for run in (own, other, longer, part):
        age(run, 120)

    assert len({run.path for run in (own, other, longer, part)}) == 4
    RunCache(tmp_path / "deltas", 1 << 20).prune([])
    assert [run.path.exists() for run in (own, other, longer, part)] == [True, False, True, True]
    assert cache.part_of(IDENTITY, [own]) == (own,)


def test_what_runs_are_made_of_is_known_when_they_have_gone(
    cache: RunCache, tmp_path: Path
) -> None:
    runs = [put(cache, n, n) for n in (1, 2)]
    merged = cache.merge(IDENTITY, runs)
    for run in runs:
        run.path.unlink()

    cache.prune([str(run.path) for run in runs])
    assert cache.part_of(IDENTITY, runs) == (merged,)
    assert RunCache(tmp_path / "deltas", 1).part_of(IDENTITY, runs) == ()
    cache.prune([])
    assert cache.part_of(IDENTITY, runs) == ()
    assert cache.part_of(IDENTITY, []) == ()


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    cache = RunCache(tmp_path / "deltas", 3000)
    size = put(cache, 1, 1).path.stat().st_size
    cache = RunCache(tmp_path / "deltas", 2 * size)
    runs = [put(cache, n, n) for n in (1, 2, 3, 4)]
    for seconds, run in zip((40, 10, 30, 20), runs, strict=True):
        age(run, seconds)
    cache.prune([str(runs[2].path)])
    assert [run.path.exists() for run in runs] == [False, True, True, True]


def test_half_made_runs_go_unless_somebody_makes_them(cache: RunCache) -> None:
    folder = put(cache, 1, 1).path.parent
    left, making = folder / ".run-1.tmp", folder / ".run-2.tmp"
    left.touch()
    with making.open("xb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        cache.prune([])
        assert (left.exists(), making.exists()) == (False, True)
    cache.prune([])
    assert not making.exists()


def test_what_another_process_removed_is_checked_anew_when_it_comes_back(
    cache: RunCache, tmp_path: Path
) -> None:
    run = put(cache, 1, 1)
    run.path.unlink()
    cache.prune([])
    run.path.parent.mkdir(exist_ok=True)
    run.path.write_bytes(b"no run")

    assert cover(cache, 1, 1) == ()
    assert not run.path.exists()


def test_folders_of_versions_that_are_gone_go(cache: RunCache, tmp_path: Path) -> None:
    run = put(cache, 1, 1)
    run.path.unlink()
    cache.prune([])
    assert list((tmp_path / "deltas").iterdir()) == []
    RunCache(tmp_path / "none", 1).prune([])


def test_deltas_become_one_run_whatever_they_hold(cache: RunCache) -> None:
    building = RunBuilding(cache, IDENTITY, 4, held_bytes=40)
    for sequence in (5, 6, 9):  # 9 replaces what is between
        building.add(sequence, 7, [rows(sequence, 1, value=sequence)], has_more=sequence == 6)
    (run,) = building.finish()

    assert (run.first, run.last) == (5, 9)
    file = RunFile.open(run.path)
    file.verify()
    assert file.others == (6,)
    assert file.tables[0].keys.tolist() == [1, 5, 6, 9]
    assert file.tables[0].values[:, 0].tolist() == [9, 5, 6, 9]
    assert spans(cover(cache, 5, 6)) == [(5, 6)], "what was written on the way stays"


def test_runs_that_are_there_stay_as_they_are(cache: RunCache) -> None:
    ready = put(cache, 1, 3)
    building = RunBuilding(cache, IDENTITY, 0)
    building.take([ready], 3)
    assert building.finish() == (ready,)
    building.add(4, 7, [], has_more=False)
    assert spans(building.finish()) == [(1, 3), (4, 4)]
