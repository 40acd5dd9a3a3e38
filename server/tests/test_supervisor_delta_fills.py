"""Run files of deltas as changes of a real store."""

from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.deltas.targets import RowChanges
from anabranch_runtime.store import Capacity, Change, Segment, StoreWriter
from anabranch_server.processes.plans import RunPlan, StorePlan
from anabranch_server.supervisor.delta_fills import run_fills
from anabranch_testing.delta_runs import marker_run, write_rows_run
from anabranch_testing.marked_rows import DIM, keys, marked_plan
from anabranch_wire.errors import Corrupt, InvalidInput, Unavailable


@pytest.fixture
def store(tmp_path: Path) -> StorePlan:
    plan = marked_plan(tmp_path, 1).store
    assert plan is not None
    return plan


@pytest.fixture
def writer(store: StorePlan) -> StoreWriter:
    room = [Capacity(one.arena_rows, one.keys) for one in store.capacities]
    return StoreWriter.create(Segment.open(Path(store.segment)), room)


def change(writer: StoreWriter, store: StorePlan, *runs: RunPlan) -> Change:
    """Apply runs, as one change."""
    with writer.begin() as change:
        for fill in run_fills(store, runs):
            fill(change)
        change.apply()
    return change


def rows(count: int, value: float) -> RowChanges:
    """Return rows for the first keys of table 0."""
    values = np.full((count, DIM), value, np.float32)
    return RowChanges(keys(0)[:count], values, np.empty(0, np.int64))


def test_rows_are_updated_inserted_and_deleted(
    tmp_path: Path, store: StorePlan, writer: StoreWriter
) -> None:
    inserted, deleted = np.array([11, 12], np.int64), keys(0)[5:7]
    changed = np.concatenate([keys(0)[:2], inserted])
    values = np.arange(4 * DIM, dtype=np.float32).reshape(4, DIM)
    run = write_rows_run(tmp_path, 3, 3, {0: RowChanges(changed, values, deleted)})

    applied = change(writer, store, run)

    found_rows, found = writer.generation.rows(0, changed, applied.version)
    assert found.all()
    assert (found_rows == values).all()
    assert not writer.generation.rows(0, deleted, applied.version)[1].any()
    assert not writer.generation.rows(1, changed[:2], 1)[0].any()


def test_later_runs_win_over_earlier_ones(
    tmp_path: Path, store: StorePlan, writer: StoreWriter
) -> None:
    none = np.empty((0, DIM), np.float32)
    gone = RowChanges(np.empty(0, np.int64), none, keys(0)[:1])
    first = write_rows_run(tmp_path, 1, 1, {0: rows(3, 1.0)})
    second = write_rows_run(tmp_path, 2, 2, {0: gone})
    third = write_rows_run(tmp_path, 3, 3, {0: rows(1, 3.0)})

    applied = change(writer, store, first, second, third)

    values, found = writer.generation.rows(0, keys(0)[:3], applied.version)
    assert found.all()
    assert values[:, 0].tolist() == [3.0, 1.0, 1.0]


def test_a_file_is_not_looked_at_before_it_is_needed(store: StorePlan) -> None:
    assert len(run_fills(store, [RunPlan("/nowhere/1", 1, 1)])) == 1


def test_a_file_that_is_gone_or_cut_short_changes_nothing(
    tmp_path: Path, store: StorePlan, writer: StoreWriter
) -> None:
    run = marker_run(tmp_path, 1)
    path = Path(run.path)
    whole = path.read_bytes()

    path.write_bytes(whole[:-64])
    with pytest.raises(Corrupt):
        change(writer, store, run)
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(Corrupt, match="rows of table"):
        change(writer, store, run)
    path.unlink()
    with pytest.raises(Unavailable) as caught:
        change(writer, store, run)

    assert str(tmp_path) not in caught.value.message
    assert writer.version == 1


def test_a_file_of_other_deltas_or_tables_is_refused(
    tmp_path: Path, store: StorePlan, writer: StoreWriter
) -> None:
    run = marker_run(tmp_path, 1)
    with pytest.raises(Corrupt, match="expected deltas 1 to 2, found 1 to 1"):
        change(writer, store, RunPlan(run.path, 1, 2))

    third = write_rows_run(tmp_path, 4, 4, {2: rows(1, 1.0)})
    with pytest.raises(Corrupt, match="rows of table 2; the store has 2"):
        change(writer, store, third)

    narrow = RowChanges(keys(0)[:1], np.zeros((1, DIM - 1), np.float32), np.empty(0, np.int64))
    with pytest.raises(InvalidInput):
        change(writer, store, write_rows_run(tmp_path, 5, 5, {0: narrow}))
