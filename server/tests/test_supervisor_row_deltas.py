"""Rows of deltas as states name them: real stores, runs and transactions; workers are stand-ins."""

import asyncio
import gc
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_model_store.deltas.targets import RowChanges
from anabranch_runtime.shared_words import SharedWords
from anabranch_server.processes.messages import CannotPrepare, HeldModel, Joined, Prepare
from anabranch_server.processes.plans import GenerationPlan, RunPlan, StatePlan, VersionPlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.numbering import first_number
from anabranch_server.supervisor.tables import TableAdministration
from anabranch_testing.delta_runs import at_delta, marker_run, write_rows_run
from anabranch_testing.event_loops import on_loop
from anabranch_testing.marked_rows import DIM, ROWS, keys, marked_plan
from anabranch_testing.row_desks import (
    Desk,
    asked,
    close_received,
    desk,
    memories,
    read,
    settled,
    with_generation,
)
from anabranch_testing.stand_ins import StandIn, until
from anabranch_testing.workers import state_of
from anabranch_wire.errors import Corrupt, InvalidInput, TooLarge, Unavailable


def retaining(state: StatePlan, retain: int = 1) -> StatePlan:
    """Return a state that keeps so many deltas for a rollback."""
    return msgspec.structs.replace(state, retain=retain)


class Version:
    """Version 1 of marked rows: those of delta d hold the marker d."""

    def __init__(self, folder: Path, *, retain: int = 1, arena_rows: int = 4 * ROWS) -> None:
        self._folder = folder
        self._retain = retain
        self.published = marked_plan(folder, 1, arena_rows=arena_rows)

    def plan(self, delta: int) -> VersionPlan:
        """Return it at a delta, made from the one before."""
        return at_delta(self.published, delta, self._folder / "runs")

    def state(self, delta: int) -> StatePlan:
        """Return a state that serves it at a delta."""
        return retaining(state_of(self.plan(delta)), self._retain)

    def from_elsewhere(self, delta: int) -> StatePlan:
        """Return a state at a delta, made from nothing."""
        plan = msgspec.structs.replace(self.plan(delta), increment=None)
        return retaining(state_of(plan), self._retain)


async def served(running: Desk, worker: StandIn, state: StatePlan) -> GenerationPlan:
    """Switch to a state of one version; returns what is read of it."""
    (place,) = asked(worker, await running.switch(state))
    return place


def markers(running: Desk, worker: StandIn) -> set[float]:
    """Return what is read now."""
    epoch = running.words.load(0)
    (place,) = asked(worker, epoch)
    return read(worker, epoch, place.store_version)


def refuse(worker: StandIn) -> None:
    """Let a worker prepare nothing more."""
    worker.on_message = lambda message: (
        worker.say(CannotPrepare("m", message.epoch, "InvalidInput", "no"))
        if isinstance(message, Prepare)
        else None
    )


def retired(running: Desk) -> int:
    """Return the superseded rows that are kept, as of the last look."""
    ((_, store),) = running.stores.stores("m")
    return sum(one.retired_rows for one in store.figures.tables)


# --- going on -------------------------------------------------------------------------------------


@on_loop
async def test_a_store_begins_with_the_rows_of_its_delta(tmp_path: Path) -> None:
    version = Version(tmp_path)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)

        assert await served(running, worker, version.state(5)) == GenerationPlan(1, 1, 2)

        assert markers(running, worker) == {5.0}
        assert running.stores.retained("m", 1) == (5,)


@on_loop
async def test_the_rows_of_a_delta_change_in_one_switch(tmp_path: Path) -> None:
    version = Version(tmp_path)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await served(running, worker, version.state(0))

        assert await served(running, worker, version.state(1)) == GenerationPlan(1, 1, 2)

        assert markers(running, worker) == {1.0}
        assert read(worker, running.words.load(0), 1) == {0.0}
        assert running.stores.retained("m", 1) == (0, 1)
        assert running.decided == sorted(running.decided)


@on_loop
async def test_many_deltas_at_once_are_one_change(tmp_path: Path) -> None:
    version = Version(tmp_path)
    plan = msgspec.structs.replace(
        version.plan(9), increment=marker_run(tmp_path / "runs", 1, 9), runs=()
    )
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await served(running, worker, version.state(0))

        assert await served(running, worker, state_of(plan)) == GenerationPlan(1, 1, 2)

        assert markers(running, worker) == {9.0}


@on_loop
async def test_rows_of_two_versions_change_in_one_switch(tmp_path: Path) -> None:
    plans = [marked_plan(tmp_path, number) for number in (1, 2)]
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await running.switch(state_of(*plans))

        changed = [at_delta(one, 3 * one.version, tmp_path / f"{one.version}") for one in plans]
        follow = [
            msgspec.structs.replace(one, increment=marker_run(tmp_path / "all", 1, one.delta))
            for one in changed
        ]
        epoch = await running.switch(state_of(*follow))

        assert asked(worker, epoch) == (GenerationPlan(1, 1, 2), GenerationPlan(2, 2, 2))
        for version, marker in ((1, 3.0), (2, 6.0)):
            store = next(one for plan, one in running.stores.stores("m") if plan.version == version)
            rows, _ = await store.rows(store.newest, 0, keys(0))
            assert set(rows.ravel().tolist()) == {marker}


@on_loop
async def test_a_delta_without_rows_reads_what_there_was(tmp_path: Path) -> None:
    version = Version(tmp_path)
    before = version.state(1)
    plan = msgspec.structs.replace(before.versions[0], delta=2, step=2, increment=None)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        place = await served(running, worker, before)

        assert await served(running, worker, retaining(state_of(plan))) == place

        assert running.stores.retained("m", 1) == (1, 2)
        assert await served(running, worker, version.state(3)) == GenerationPlan(1, 1, 3)


@on_loop
async def test_a_worker_that_joins_during_a_switch_gets_what_is_current_first(
    tmp_path: Path,
) -> None:
    version = Version(tmp_path)
    async with desk(tmp_path) as running:
        await running.joined(0)
        first = await running.switch(version.state(1))
        late: list[StandIn] = []

        async def decide(epoch: int) -> None:
            late.append(running.worker(1))
            await until(lambda: any(isinstance(one, Prepare) for one in late[0].heard))
            (place,) = asked(late[0], first)
            assert read(late[0], first, place.store_version) == {1.0}

        second = await running.transactions.switch("m", version.state(2), decide)

        await late[0].hear(Joined)
        assert asked(late[0], second) == (GenerationPlan(1, 1, 3),)
        assert read(late[0], second, 3) == {2.0}


# --- going back -----------------------------------------------------------------------------------


@on_loop
async def test_a_rollback_to_a_retained_delta_touches_no_row(tmp_path: Path) -> None:
    version = Version(tmp_path)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        for delta in (1, 2):
            await served(running, worker, version.state(delta))
            running.release(running.words.load(0))
            await settled(running)
        ((_, store),) = running.stores.stores("m")
        newest = store.newest

        assert await served(running, worker, version.state(1)) == GenerationPlan(1, 1, 2)

        assert markers(running, worker) == {1.0}
        assert store.newest == newest
        assert await served(running, worker, version.state(2)) == newest
        assert markers(running, worker) == {2.0}


@on_loop
async def test_after_a_rollback_deltas_go_on_from_the_newest_one(tmp_path: Path) -> None:
    version = Version(tmp_path)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        for delta in (1, 2, 1):
            await served(running, worker, version.state(delta))

        assert await served(running, worker, version.state(3)) == GenerationPlan(1, 1, 4)

        assert markers(running, worker) == {3.0}
        assert running.stores.retained("m", 1) == (1, 3)


@on_loop
async def test_what_was_made_from_another_delta_is_never_applied_on_top(tmp_path: Path) -> None:
    """As after a rollback: the plan was made from delta 1, the store is at delta 2."""
    version = Version(tmp_path)
    partial = RowChanges(keys(0)[:1], np.full((1, DIM), 7.0, np.float32), np.empty(0, np.int64))
    wrong = write_rows_run(tmp_path / "wrong", 2, 3, {0: partial})
    plan = msgspec.structs.replace(version.plan(3), increment=wrong)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        for delta in (1, 2, 1):
            await served(running, worker, version.state(delta))

        place = await served(running, worker, retaining(state_of(plan)))

        assert place.number == 2
        assert markers(running, worker) == {3.0}
        assert running.stores.retained("m", 1) == (3,)


@pytest.mark.parametrize("delta", [0, 1])
@on_loop
async def test_a_rollback_to_another_delta_is_a_fresh_generation(
    tmp_path: Path, delta: int
) -> None:
    version = Version(tmp_path, retain=0)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        for applied in (1, 2, 3):
            await served(running, worker, version.state(applied))
        assert running.stores.retained("m", 1) == (3,)

        place = await served(running, worker, version.state(delta))

        assert place.number == 2
        assert markers(running, worker) == {float(delta)}
        running.release(running.words.load(0))
        ((_, store),) = running.stores.stores("m")
        await until(lambda: list(store.numbers) == [2])
        assert (await served(running, worker, version.state(delta + 1))).number == 2
        assert markers(running, worker) == {float(delta + 1)}


@on_loop
async def test_rows_of_retained_deltas_stay_and_those_of_others_are_freed(tmp_path: Path) -> None:
    version = Version(tmp_path)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        for delta in range(1, 5):
            await served(running, worker, version.state(delta))
            running.release(running.words.load(0))
            await until(lambda: running.transactions.floor("m") == running.words.load(0))
            await settled(running)
        ((_, store),) = running.stores.stores("m")
        await store.look()

        assert running.stores.retained("m", 1) == (3, 4)
        assert retired(running) == 2 * ROWS  # those of delta 3, in both tables
        await served(running, worker, version.state(3))
        assert markers(running, worker) == {3.0}


@on_loop
async def test_versions_that_are_not_in_memory_retain_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        assert running.stores.retained("m", 1) == ()
        await running.joined(0)
        await running.switch(Version(tmp_path).state(1))

        assert running.stores.retained("m", 2) == ()


# --- room -----------------------------------------------------------------------------------------


@on_loop
async def test_rows_that_do_not_fit_are_made_anew_with_more_room(
    tmp_path: Path, no_spare_room: None
) -> None:
    version = Version(tmp_path, arena_rows=ROWS // 2)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await served(running, worker, version.state(0))

        place = await served(running, worker, version.state(1))

        assert place.number == 2
        assert markers(running, worker) == {1.0}
        assert running.stores.retained("m", 1) == (1,)


@on_loop
async def test_without_memory_for_that_the_delta_is_refused_with_the_numbers(
    tmp_path: Path, no_spare_room: None
) -> None:
    version = Version(tmp_path, arena_rows=ROWS // 2)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await served(running, worker, version.state(0))
        running.available = lambda: 1000

        with pytest.raises(TooLarge, match="the machine has 1000 left"):
            await running.switch(version.state(1))

        assert markers(running, worker) == {0.0}
        assert running.stores.retained("m", 1) == (0,)


@on_loop
async def test_a_generation_with_more_room_has_the_newest_delta_alone(tmp_path: Path) -> None:
    version = Version(tmp_path, arena_rows=5 * ROWS // 2)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        for delta in (0, 1, 2):
            await served(running, worker, version.state(delta))

        def number() -> int:
            return running.stores.stores("m")[0][0].number

        await until(lambda: number() > 1)

        assert running.stores.retained("m", 1) == (2,)
        epoch = running.words.load(0)
        (place,) = asked(worker, epoch)
        assert read(worker, epoch, place.store_version) == {2.0}


@on_loop
async def test_rows_that_were_rolled_back_get_no_more_room_meanwhile(tmp_path: Path) -> None:
    version = Version(tmp_path)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        for delta in (1, 2, 1):
            await served(running, worker, version.state(delta))

        with pytest.raises(Unavailable, match="rolled back"):
            await running.mark(9.0)
        room = running.stores._room
        assert room is not None
        with pytest.raises(Unavailable, match="rolled back"):
            await room.make("m", 1, {0: ROWS})

        assert markers(running, worker) == {1.0}
        await served(running, worker, version.state(3))
        assert markers(running, worker) == {3.0}


# --- what is shown --------------------------------------------------------------------------------


@on_loop
async def test_rows_are_shown_with_the_delta_that_changed_them(tmp_path: Path) -> None:
    version = Version(tmp_path)
    async with desk(tmp_path) as running:
        await running.joined(0)

        def states() -> dict[str, StatePlan]:
            state = running.transactions.current["m"].state
            return {} if state is None else {"m": state}

        tables = TableAdministration(running.stores, states, tuple)
        for delta in (0, 1, 2):
            await running.switch(version.state(delta))

        changed, absent = await tables.rows("m", "b", [int(keys(1)[7]), 12345])

        assert (changed.values, changed.changed_by_delta) == ([2.0] * DIM, 2)
        assert (absent.found, absent.changed_by_delta) == (False, None)


# --- refusals -------------------------------------------------------------------------------------


def following(version: Version) -> StatePlan:
    return version.state(2)


def anew(version: Version) -> StatePlan:
    return version.from_elsewhere(3)


def without_rows(version: Version) -> StatePlan:
    plan = msgspec.structs.replace(version.plan(1), delta=2, increment=None)
    return retaining(state_of(plan))


def back(version: Version) -> StatePlan:
    return version.state(0)


@pytest.mark.parametrize("wanted", [following, anew, without_rows, back])
@pytest.mark.parametrize("by", ["worker", "decision"])
@on_loop
async def test_a_switch_that_is_refused_touches_no_row(
    tmp_path: Path, wanted: Callable[[Version], StatePlan], by: str
) -> None:
    version = Version(tmp_path)
    before = memories()
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        for delta in (0, 1):
            await served(running, worker, version.state(delta))
        ((_, store),) = running.stores.stores("m")
        newest, epoch = store.newest, running.words.load(0)

        async def decide(epoch: int) -> None:
            assert markers(running, worker) == {1.0}
            raise Unavailable("disk full")

        if by == "worker":
            refuse(worker)
        with pytest.raises((InvalidInput, Unavailable)):
            await running.transactions.switch("m", wanted(version), decide)
        await settled(running)

        assert running.words.load(0) == epoch
        assert store.newest == newest
        assert list(store.numbers) == [1]
        assert running.stores.retained("m", 1) == (0, 1)
        worker.prepare_all()
        assert await served(running, worker, version.state(2)) == GenerationPlan(1, 1, 3)
        assert markers(running, worker) == {2.0}
        close_received(worker)
    await until(lambda: memories() <= before)


def damage(run: RunPlan | None) -> None:
    """Change a bit of a run's rows."""
    assert run is not None
    damaged = bytearray(Path(run.path).read_bytes())
    damaged[-1] ^= 1
    Path(run.path).write_bytes(damaged)


@on_loop
async def test_a_damaged_run_refuses_the_delta_and_changes_nothing(tmp_path: Path) -> None:
    version = Version(tmp_path)
    state = version.state(1)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await served(running, worker, version.state(0))
        damage(state.versions[0].increment)

        with pytest.raises(Corrupt):
            await running.switch(state)

        assert markers(running, worker) == {0.0}
        assert await served(running, worker, version.state(1)) == GenerationPlan(1, 1, 2)


# --- another supervisor ---------------------------------------------------------------------------


@on_loop
async def test_a_successor_makes_the_rows_of_the_delta_that_is_served(tmp_path: Path) -> None:
    state = Version(tmp_path).state(4)
    held = HeldModel(0, (6,), with_generation(state, GenerationPlan(1, 1, 9)))
    words = SharedWords.create(4)
    words.store(0, 6)
    elder = StandIn(0)
    async with desk(tmp_path, incarnation=2, words=words, earlier=[(elder, held)]) as running:
        adopted = running.transactions.adopted()["m"]
        assert adopted == state

        place = await served(running, elder, adopted)

        assert place == GenerationPlan(1, first_number(2) + 1, 2)
        assert markers(running, elder) == {4.0}


# --- a table that may have no more keys ----------------------------------------------------------


def full_version(folder: Path) -> VersionPlan:
    """Return version 1, whose tables may have no more keys than they begin with."""
    plan = marked_plan(folder, 1)
    assert plan.store is not None
    rooms = [msgspec.structs.replace(o, keys=ROWS, most_keys=ROWS) for o in plan.store.capacities]
    store = msgspec.structs.replace(plan.store, capacities=tuple(rooms))
    return msgspec.structs.replace(plan, store=store)


def adding(
    folder: Path, plan: VersionPlan, delta: int, count: int, deleted: NDArray[np.int64]
) -> VersionPlan:
    """Return a version one delta further, which brings `count` keys and deletes others."""
    added = np.arange(count, dtype=np.int64) + 1000 * delta
    rows = RowChanges(added, np.full((count, DIM), float(delta), np.float32), deleted)
    run = write_rows_run(folder / "runs", delta, delta, {0: rows})
    return msgspec.structs.replace(plan, delta=delta, runs=(*plan.runs, run), increment=run)


def live_keys(running: Desk) -> int:
    ((_, store),) = running.stores.stores("m")
    return store.figures.tables[0].live_keys


@on_loop
async def test_a_delta_may_bring_as_many_keys_to_a_full_table_as_it_deletes(tmp_path: Path) -> None:
    plan, deleted = full_version(tmp_path), keys(0)[:10]
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await served(running, worker, retaining(state_of(plan)))
        for delta in range(1, 9):
            plan = adding(tmp_path, plan, delta, 10, deleted)
            deleted = np.arange(10, dtype=np.int64) + 1000 * delta
            running.release(await running.switch(retaining(state_of(plan))))
            await settled(running)
        await running.stores.refresh()
        assert live_keys(running) == ROWS
    async with desk(tmp_path) as running:
        await running.joined(0)
        await running.switch(retaining(state_of(plan)))
        await running.stores.refresh()
        assert live_keys(running) == ROWS


@on_loop
async def test_what_is_remembered_of_rows_that_did_not_fit_keeps_no_memory(tmp_path: Path) -> None:
    full = full_version(tmp_path)
    plan = adding(tmp_path, full, 1, 10, keys(0)[:0])
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await served(running, worker, state_of(full))
        before = memories()
        errors: list[BaseException] = []
        for _ in range(3):
            with pytest.raises(NoRoom) as caught:
                await running.switch(state_of(plan))
            errors.append(caught.value)
        gc.collect()
        assert memories() == before
        assert all(one.__context__ is None for one in errors)


@on_loop
async def test_rows_that_fit_nowhere_are_made_anew_once_until_a_delta_takes_others_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = full_version(tmp_path)
    plan = adding(tmp_path, full, 1, 10, keys(0)[:0])
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        with pytest.raises(NoRoom, match="room for 256 keys") as caught:
            await running.switch(state_of(plan))
        assert caught.value.version == 1
        await served(running, worker, state_of(full))
        with caplog.at_level(logging.INFO):
            for _ in range(5):
                with pytest.raises(NoRoom, match="room for 256 keys") as caught:
                    await running.switch(state_of(plan))
                assert caught.value.version == 1
        events = [vars(line).get("event") for line in caplog.records]
        assert events.count("store_renewed") == 1
        gone = np.arange(10, dtype=np.int64) + 1000
        plan = adding(tmp_path, plan, 2, 5, np.concatenate([gone, keys(0)[:5]]))
        await running.switch(state_of(msgspec.structs.replace(plan, increment=None)))
        await running.stores.refresh()
        assert live_keys(running) == ROWS
    async with desk(tmp_path) as running:
        await running.joined(0)
        await running.switch(state_of(plan))
        await running.stores.refresh()
        assert live_keys(running) == ROWS


# --- what is left ---------------------------------------------------------------------------------


def churned(folder: Path, delta: int) -> RunPlan:
    """Write a delta that brings some keys of its own, deletes those of the one before and more."""
    fresh = np.arange(3, dtype=np.int64) + 1_000_000 + 1000 * delta
    changed = np.concatenate([keys(0)[10:40], fresh])
    values = np.full((len(changed), DIM), float(delta), np.float32)
    return write_rows_run(folder, delta, delta, {0: RowChanges(changed, values, fresh - 1000)})


def kept(running: Desk) -> tuple[int, ...]:
    """Return the lengths of what is kept for switches that come and go."""
    stores, transactions = running.stores, running.transactions
    model = stores._models["m"]
    return (
        len(model.epochs) + len(model.stores),
        len(stores._tasks),
        len(transactions._outcomes),
        transactions.leases("m")[0],
    )


@on_loop
async def test_hundreds_of_deltas_with_other_keys_leave_the_store_as_large_as_it_was(
    tmp_path: Path,
) -> None:
    published = marked_plan(tmp_path, 1, arena_rows=4 * ROWS)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await running.switch(retaining(state_of(published)))
        ((_, store),) = running.stores.stores("m")
        sizes: list[tuple[int, int, int, int]] = []

        for delta in range(1, 301):
            run = churned(tmp_path / "runs", delta)
            plan = msgspec.structs.replace(published, delta=delta, increment=run, runs=(run,))
            epoch = await running.switch(retaining(state_of(plan)))
            running.release(epoch)
            await until(lambda: running.transactions.floor("m") == epoch)  # noqa: B023
            await settled(running)
            close_received(worker)
            worker.heard.clear()
            table = (await store.stats())[0]
            sizes.append((table.live_keys, table.arena_used, table.retired_rows, table.slots))
            assert kept(running) == (2, 0, 0, 1)

        assert list(store.numbers) == [1]
        assert max(size[0] for size in sizes) == ROWS + 3
        assert max(size[1] for size in sizes) <= max(size[1] for size in sizes[:10])
        assert {size[3] for size in sizes} == {sizes[0][3]}
        values, found = await store.rows(store.newest, 0, keys(0)[10:40])
        assert found.all()
        assert (values == 300.0).all()
        gone = np.arange(3, dtype=np.int64) + 1_000_000 + 1000 * 299
        assert not (await store.rows(store.newest, 0, gone))[1].any()
        assert store.deltas == (299, 300)


@on_loop
async def test_stores_that_go_by_themselves_meanwhile_are_closed_once(tmp_path: Path) -> None:
    version = Version(tmp_path)
    async with desk(tmp_path) as running:
        await running.joined(0)
        await running.switch(version.state(1))
        [(_, store)] = running.stores.stores("m")

        await asyncio.gather(store.close(), running.stores.close(), store.close())
