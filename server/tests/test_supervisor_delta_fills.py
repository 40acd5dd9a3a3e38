"""Run files of deltas as changes of a real store."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.deltas.targets import RowChanges
from anabranch_runtime.store import Capacity, Change, Segment, StoreFull, StoreWriter
from anabranch_server.processes.plans import RunPlan, StorePlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.delta_fills import net_fill, run_fills, ways_to_make
from anabranch_server.supervisor.store_replay import replayed
from anabranch_testing.delta_runs import marker_run, write_rows_run
from anabranch_testing.marked_rows import DIM, ROWS, keys, marked_plan
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


def test_in_the_end_keys_that_a_later_run_deletes_need_no_room(
    tmp_path: Path, store: StorePlan
) -> None:
    room = [Capacity(one.arena_rows, ROWS + 2) for one in store.capacities]
    writer = StoreWriter.create(Segment.open(Path(store.segment)), room)
    many = np.arange(10, 30, dtype=np.int64)
    none = np.empty((0, DIM), np.float32)
    runs = [
        write_rows_run(
            tmp_path, 1, 1,
            {0: RowChanges(many, np.ones((20, DIM), np.float32), many[:0])},
        ),
        write_rows_run(tmp_path, 2, 2, {0: RowChanges(many[:0], none, many[2:])}),
    ]  # fmt: skip
    first, _ = run_fills(store, runs)
    with writer.begin() as change, pytest.raises(StoreFull):
        first(change)

    with writer.begin() as change:
        net_fill(store, runs)(change)
        change.apply()

    assert writer.generation.rows(0, many, change.version)[1].tolist() == [True] * 2 + [False] * 18


def test_a_full_table_is_renewed_as_a_whole(tmp_path: Path, store: StorePlan) -> None:
    full = [ROWS] * len(store.capacities)
    room = [Capacity(one.arena_rows, ROWS) for one in store.capacities]
    before, runs = keys(0), []
    for delta in range(1, 4):
        after = np.arange(delta * 1_000, delta * 1_000 + ROWS, dtype=np.int64)
        values = np.full((ROWS, DIM), float(delta), np.float32)
        runs.append(write_rows_run(tmp_path, delta, delta, {0: RowChanges(after, values, before)}))
        before = after
        *others, last = ways_to_make(run_fills, store, runs)

        for fills in others:
            with pytest.raises(NoRoom, match=r"capacity\.max_rows"):
                replayed(Segment.open(Path(store.segment)), room, full, fills, None)
        writer, _ = replayed(Segment.open(Path(store.segment)), room, full, last, None)

        found, there = writer.generation.rows(0, after, writer.version)
        assert there.all()
        assert (found == delta).all()
        assert writer.stats(0).live_keys == ROWS


def test_a_table_that_is_too_small_for_what_comes_stays_so(
    tmp_path: Path, store: StorePlan
) -> None:
    full = [ROWS] * len(store.capacities)
    room = [Capacity(one.arena_rows, ROWS) for one in store.capacities]
    one_more = RowChanges(
        np.arange(1_000, 1_003, dtype=np.int64), np.ones((3, DIM), np.float32), keys(0)[:2]
    )
    run = write_rows_run(tmp_path, 1, 1, {0: one_more})

    for fills in ways_to_make(run_fills, store, [run]):
        with pytest.raises(NoRoom, match=f"room for {ROWS} keys"):
            replayed(Segment.open(Path(store.segment)), room, full, fills, None)


_KEYS = st.sets(st.integers(-3, 12), max_size=12)


@settings(max_examples=30)
@given(told=st.lists(st.tuples(_KEYS, _KEYS), min_size=1, max_size=5))
def test_in_the_end_runs_change_what_they_do_one_after_the_other(
    told: list[tuple[set[int], set[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    plan = marked_plan(folder, 1).store
    assert plan is not None
    runs = []
    for delta, (keys_of, deleted) in enumerate(told, 1):
        changed = np.array(sorted(keys_of), np.int64)
        values = np.full((len(changed), DIM), float(delta), np.float32)
        gone = np.array(sorted(deleted - keys_of), np.int64)
        runs.append(write_rows_run(folder, delta, delta, {0: RowChanges(changed, values, gone)}))
    asked = np.arange(-3, 13)
    found = []
    for fills in ways_to_make(run_fills, plan, runs):
        room = [Capacity(one.arena_rows, one.keys) for one in plan.capacities]
        writer = StoreWriter.create(Segment.open(Path(plan.segment)), room)
        with writer.begin() as change:
            for fill in fills:
                fill(change)
            change.apply()
        values, there = writer.generation.rows(0, asked, change.version)
        found.append((values[there].tolist(), there.tolist()))
    assert len(found) == (2 if len(told) == 1 else 3)
    assert all(one == found[0] for one in found)


def test_in_the_end_a_damaged_run_changes_nothing(
    tmp_path: Path, store: StorePlan, writer: StoreWriter
) -> None:
    runs = [marker_run(tmp_path, 1), marker_run(tmp_path, 2)]
    file = Path(runs[0].path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with writer.begin() as change, pytest.raises(Corrupt):
        net_fill(store, runs)(change)
    with writer.begin() as change, pytest.raises(Corrupt, match="expected deltas 2 to 2"):
        net_fill(store, [RunPlan(runs[0].path, 2, 2)])(change)
