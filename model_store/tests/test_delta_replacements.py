"""Numbers that are given to other deltas: their rows come, whatever the cache has of the others."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.deltas.application import AppliedDeltas, DeltaCaches, apply_deltas
from anabranch_model_store.deltas.compaction import Compactor
from anabranch_model_store.deltas.origins import LocalOrigin
from anabranch_model_store.deltas.run_cache import RunCache
from anabranch_model_store.deltas.run_writing import RunHead, write_run
from anabranch_model_store.deltas.runs import RunFile
from anabranch_model_store.deltas.targets import DeltaTarget, Run
from anabranch_testing.written_deltas import DeltaWriter, RowsWritten, StoreShape, store_target

Rows = dict[int, float | None]


class Shop:
    """A version with a store; deltas are published for it, replaced and applied."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.target = store_target(root, StoreShape("emb", 3))
        self.writer = DeltaWriter(self.target.folder)
        self.attempts = 0

    def publish(self, sequence: int, rows: Rows, replaces_from: int | None = None) -> None:
        """Publish a delta, in place of one that has its number."""
        shutil.rmtree(self.writer.attempt(sequence).parent, ignore_errors=True)
        self.attempts += 1
        self.writer.attempt_name = f"{self.attempts:016x}"
        kept = {key: value for key, value in rows.items() if value is not None}
        values = np.repeat(np.array(list(kept.values()), np.float32), 2).reshape(len(kept), 2)
        gone = [key for key in rows if rows[key] is None]
        self.writer.write(
            sequence, RowsWritten("emb", list(kept), values, gone), replaces_from=replaces_from
        )

    @property
    def cache(self) -> RunCache:
        """The runs as a process that has just begun finds them."""
        return RunCache(self.root / "cache" / "deltas", 1 << 30)

    def apply(self, upto: int, target: DeltaTarget | None = None) -> AppliedDeltas:
        """Apply deltas in a process that has just begun; None is the version as published."""
        caches = DeltaCaches(self.root / "cache", self.cache)
        return apply_deltas(target or self.target, upto, LocalOrigin(), caches)

    def lose_files(self, *numbers: int) -> None:
        """Have it be known who reads files of deltas."""
        for number in numbers:
            for file in (self.target.folder / "deltas" / f"{number:08}").rglob("*.safetensors"):
                file.unlink()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def rows_of(runs: tuple[Run, ...]) -> Rows:
    """Return what runs make of the table."""
    found: Rows = {}
    for run in runs:
        for one in RunFile.open(run.path).tables:
            found.update(zip(one.keys.tolist(), one.values[:, 0].tolist(), strict=True))
            found.update(dict.fromkeys(one.deleted.tolist()))
    return found


def spans(runs: tuple[Run, ...]) -> list[tuple[int, int]]:
    return [(run.first, run.last) for run in runs]


def test_a_delta_refused_at_the_switch_leaves_no_rows_to_the_next_of_its_number(shop: Shop) -> None:
    shop.publish(1, {1: 1})
    shop.publish(2, {2: 2})
    before = shop.apply(1).target
    assert rows_of(shop.apply(2, before).target.runs) == {1: 1, 2: 2}

    shop.publish(2, {3: 3})  # nothing was told of why the first was not served

    for target in (before, None):
        found = shop.apply(2, target)
        assert found.fault is None
        assert rows_of(found.target.runs) == {1: 1, 3: 3}
    assert found.upserts == 2


def test_a_served_delta_that_was_replaced_is_the_new_one_after_a_restart(shop: Shop) -> None:
    for number in (1, 2, 3):
        shop.publish(number, {number: number})
    shop.apply(3)
    shop.publish(3, {9: 9})
    assert rows_of(shop.apply(3).target.runs) == {1: 1, 2: 2, 9: 9}


def test_an_attempt_of_the_same_name_is_another_delta_where_its_files_are_others(
    shop: Shop,
) -> None:
    shop.publish(1, {1: 1})
    shop.apply(1)
    shop.attempts = 0
    shop.publish(1, {2: 2})
    assert rows_of(shop.apply(1).target.runs) == {2: 2}


@pytest.mark.parametrize("replaced", [1, 3, 8])
def test_merged_runs_are_taken_unless_one_of_their_deltas_was_replaced(
    shop: Shop, replaced: int
) -> None:
    target = shop.target
    for number in range(1, 9):
        shop.publish(number, {number: number})
        target = shop.apply(number, target).target
    compactor = Compactor(shop.cache)
    compactor.offer(target.identity, target.runs)
    compactor.settle()
    compactor.close()
    expected: Rows = {number: number for number in range(1, 9)}
    found = shop.apply(8)
    assert spans(found.target.runs) == [(1, 8)]
    assert rows_of(found.target.runs) == expected

    shop.publish(replaced, {99: 99})

    shop.lose_files(*range(1, replaced))  # they are not read again
    found = shop.apply(8)
    assert found.fault is None
    del expected[replaced]
    assert rows_of(found.target.runs) == expected | {99: 99}


def test_a_running_server_goes_on_from_its_own_runs(shop: Shop) -> None:
    target = shop.target
    for number in (1, 2):
        shop.publish(number, {number: number})
        target = shop.apply(number, target).target
    shop.publish(2, {2: -2})
    other = shop.apply(2).target  # of another process with this cache
    merged = shop.cache.merge(target.identity, other.runs)
    shop.publish(3, {3: 3})

    assert rows_of(shop.apply(3, target).target.runs) == {1: 1, 2: 2, 3: 3}
    assert shop.apply(3, other).target.runs[0] == merged
    assert rows_of(shop.apply(3).target.runs) == {1: 1, 2: -2, 3: 3}


def test_that_a_served_delta_was_replaced_is_said_with_the_next_one(shop: Shop) -> None:
    shop.publish(1, {1: 1})
    served = shop.apply(1).target
    shop.publish(2, {2: 2})
    assert shop.apply(2, served).notes == ()
    shop.publish(1, {5: 5})

    (note,) = shop.apply(2, served).notes
    assert note.startswith("delta 1 was replaced after it had been applied")
    assert shop.apply(2).notes == ()
    served.runs[0].path.unlink()
    assert shop.apply(2, served).notes == (), "nobody knows any more"


def test_runs_of_deltas_that_were_removed_stay(shop: Shop) -> None:
    for number in (1, 2, 3):
        shop.publish(number, {number: number})
    shop.apply(2)
    shop.apply(3, shop.apply(2).target)
    shutil.rmtree(shop.writer.attempt(1).parent)
    (shop.writer.attempt(2).parent / "delta.json").write_text("nothing that can be read")
    shop.lose_files(3)

    found = shop.apply(3)

    assert found.fault is None
    assert rows_of(found.target.runs) == {1: 1, 2: 2, 3: 3}


def test_a_cumulative_delta_may_be_replaced(shop: Shop) -> None:
    for number in (1, 2):
        shop.publish(number, {number: number})
    shop.publish(3, {1: 1, 2: 2, 3: 3}, replaces_from=1)
    shop.apply(3, shop.apply(2).target)
    shop.publish(3, {1: 1, 2: None, 4: 4}, replaces_from=1)
    assert rows_of(shop.apply(3).target.runs) == {1: 1, 2: None, 4: 4}


def test_a_delta_below_a_cumulative_one_may_be_replaced(shop: Shop) -> None:
    for number in (1, 2):
        shop.publish(number, {number: number})
    shop.publish(3, {1: 1, 2: 2}, replaces_from=1)
    shop.apply(3, shop.apply(2).target)
    shop.publish(2, {5: 5})
    shop.publish(3, {1: 1, 5: 5}, replaces_from=1)
    assert rows_of(shop.apply(3).target.runs) == {1: 1, 5: 5}
    assert rows_of(shop.apply(2).target.runs) == {1: 1, 5: 5}


def test_runs_of_which_nothing_is_known_are_made_anew(shop: Shop) -> None:
    shop.publish(1, {1: 1})
    run = shop.apply(1).target.runs[0]
    folder = run.path.parent
    run.path.unlink()
    file_of_before = folder / "00000001-00000001.run"
    file_of_before.write_bytes(b"what an earlier release wrote")
    unknown = shop.cache.put(RunHead(shop.target.identity, 1, 1), [])

    assert rows_of(shop.apply(1).target.runs) == {1: 1}
    assert unknown.path.exists()
    shop.cache.prune([])
    assert not file_of_before.exists()


def test_a_run_that_says_it_is_made_of_others_is_damaged(shop: Shop) -> None:
    shop.publish(1, {1: 1})
    run = shop.apply(1).target.runs[0]
    head = RunHead(shop.target.identity, 1, 1)
    run.path.unlink()
    write_run(run.path.parent, run.path.name, head, [])
    assert rows_of(shop.apply(1).target.runs) == {1: 1}


@settings(max_examples=25)
@given(st.data())
def test_whatever_was_replaced_a_restart_serves_what_is_published(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    changed: list[Rows] = []
    firsts: list[int] = []
    target = shop.target
    for step in range(data.draw(st.integers(1, 8))):
        number = data.draw(st.integers(1, len(changed) + 1))
        changed[number - 1 : number] = [
            {
                key: data.draw(st.sampled_from([None, float(step)]))
                for key in data.draw(st.sets(st.integers(0, 5), max_size=3))
            }
        ]
        firsts[number - 1 : number] = [data.draw(st.integers(1, number))]
        for later in range(number, len(changed) + 1):  # those above that hold what it has changed
            if firsts[later - 1] <= number:
                merged: Rows = {}
                for rows in changed[firsts[later - 1] - 1 : later]:
                    merged.update(rows)
                shop.publish(later, merged, replaces_from=firsts[later - 1])
        if data.draw(st.booleans()):
            target = shop.apply(
                len(changed), data.draw(st.sampled_from([shop.target, target]))
            ).target
            if len(target.runs) > 1 and data.draw(st.booleans()):
                shop.cache.merge(target.identity, target.runs[-2:])
    expected: Rows = {}
    for rows in changed:
        expected.update(rows)

    found = shop.apply(len(changed))

    assert found.fault is None
    assert rows_of(found.target.runs) == expected
