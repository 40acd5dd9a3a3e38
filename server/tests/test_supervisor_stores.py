"""Rows as a participant of switches: real stores and transactions, workers are stand-ins."""

import asyncio
import errno
from pathlib import Path

import pytest

from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import Change, StoreWriter
from anabranch_server.processes.messages import CannotPrepare, HeldModel, Joined, Prepare, Released
from anabranch_server.processes.plans import GenerationPlan, StatePlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.effects import WorkerId
from anabranch_server.supervisor.numbering import first_number
from anabranch_server.supervisor.store_values import store_values
from anabranch_server.supervisor.tables import TableAdministration
from anabranch_testing.event_loops import on_loop
from anabranch_testing.marked_rows import ROWS, keys, marked_plan, marking
from anabranch_testing.row_desks import (
    asked,
    close_received,
    desk,
    memories,
    read,
    settled,
    with_generation,
)
from anabranch_testing.stand_ins import StandIn, until
from anabranch_testing.workers import scale_plan, state_of
from anabranch_wire.errors import InvalidInput, NotFound, TooLarge, Unavailable

# --- switches -------------------------------------------------------------------------------------


@on_loop
async def test_a_switch_hands_out_generations_that_can_be_read(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        worker = await running.joined(0)

        epoch = await running.switch(state_of(marked_plan(tmp_path, 1, marker=3.0)))

        assert asked(worker, epoch) == (GenerationPlan(1, 1, 1),)
        assert read(worker, epoch, 1) == {3.0}


@on_loop
async def test_only_versions_with_tables_have_generations(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        worker = await running.joined(0)

        epoch = await running.switch(state_of(scale_plan(tmp_path, 1), marked_plan(tmp_path, 2)))

        assert [one.version for one in asked(worker, epoch)] == [2]
        assert len(worker.fds[epoch]) == 2


@on_loop
async def test_what_changes_beside_the_rows_leaves_the_generation(tmp_path: Path) -> None:
    plan = marked_plan(tmp_path, 1)
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        first = await running.switch(state_of(plan))

        second = await running.switch(state_of(plan, scale_plan(tmp_path, 2)))

        assert asked(worker, second) == asked(worker, first)


@on_loop
async def test_a_worker_that_joins_later_gets_the_generations_too(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        await running.joined(0)
        epoch = await running.switch(state_of(marked_plan(tmp_path, 1)))
        epoch = await running.mark(5.0)

        late = await running.joined(1)

        assert asked(late, epoch) == (GenerationPlan(1, 1, 2),)
        assert read(late, epoch, 2) == {5.0}


@on_loop
async def test_without_memory_a_switch_is_refused_with_the_numbers(tmp_path: Path) -> None:
    async with desk(tmp_path, available=lambda: 1000) as running:
        await running.joined(0)

        with pytest.raises(TooLarge, match="the machine has 1000 left"):
            await running.switch(state_of(marked_plan(tmp_path, 1)))

        assert running.decided == []
        await running.switch(state_of(scale_plan(tmp_path, 1)))


@on_loop
async def test_memory_that_workers_are_about_to_release_is_waited_for(tmp_path: Path) -> None:
    before = memories()
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        first = await running.switch(state_of(marked_plan(tmp_path, 1)))
        worker.say(Released("m", first))
        gone = await running.switch(state_of(scale_plan(tmp_path, 2)))
        running.available = lambda: None if memories() <= before else 0
        switching = asyncio.ensure_future(running.switch(state_of(marked_plan(tmp_path, 3))))
        await asyncio.sleep(0.1)
        assert not switching.done()

        worker.say(Released("m", gone))
        close_received(worker)

        assert await switching == gone + 1


@on_loop
async def test_a_segment_that_is_gone_refuses_the_switch_without_its_path(tmp_path: Path) -> None:
    plan = marked_plan(tmp_path, 1)
    assert plan.store is not None
    Path(plan.store.segment).unlink()  # noqa: ASYNC240
    async with desk(tmp_path) as running:
        await running.joined(0)

        with pytest.raises(Unavailable, match="tables of the version") as caught:
            await running.switch(state_of(plan))

        assert str(tmp_path) not in caught.value.message


@on_loop
async def test_a_refused_switch_leaves_no_store(tmp_path: Path) -> None:
    before = memories()
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        worker.on_message = lambda message: (
            worker.say(CannotPrepare("m", message.epoch, "InvalidInput", "no"))
            if isinstance(message, Prepare)
            else None
        )

        with pytest.raises(InvalidInput):
            await running.switch(state_of(marked_plan(tmp_path, 1)))

        close_received(worker)
        await until(lambda: memories() <= before)


# --- changes of rows ------------------------------------------------------------------------------


@on_loop
async def test_changed_rows_are_another_version_of_the_same_generation(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        first = await running.switch(state_of(marked_plan(tmp_path, 1)))

        second = await running.mark(7.0)

        assert second > first
        assert running.words.load(0) == second
        assert asked(worker, second) == (GenerationPlan(1, 1, 2),)
        assert read(worker, second, 2) == {7.0}
        assert read(worker, second, 1) == {0.0}


@on_loop
async def test_rows_change_only_when_all_are_prepared_and_it_is_durable(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        before = await running.switch(state_of(marked_plan(tmp_path, 1)))
        seen: list[set[float]] = []

        async def decide(epoch: int) -> None:
            seen.append(read(worker, before, 2))
            assert running.words.load(0) == before

        await running.stores.change("m", 1, marking(1.0), decide)

        assert seen == [{0.0}]


@pytest.mark.parametrize("refusal", ["worker", "decision", "filling"])
@on_loop
async def test_a_change_that_is_refused_changes_nothing_and_the_next_one_may(
    tmp_path: Path, refusal: str
) -> None:
    async def decide(epoch: int) -> None:
        if refusal == "decision":
            raise Unavailable("disk full")

    def fill(change: Change) -> None:
        marking(1.0)(change)
        if refusal == "filling":
            raise InvalidInput("a row is wrong")

    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        before = await running.switch(state_of(marked_plan(tmp_path, 1)))
        if refusal == "worker":
            worker.on_message = lambda message: (
                worker.say(CannotPrepare("m", message.epoch, "InvalidInput", "no"))
                if isinstance(message, Prepare)
                else None
            )

        with pytest.raises((InvalidInput, Unavailable)):
            await running.stores.change("m", 1, fill, decide)

        assert running.words.load(0) == before
        assert read(worker, before, 2) == {0.0}
        worker.prepare_all()
        after = await running.mark(2.0)
        assert asked(worker, after) == (GenerationPlan(1, 1, 2),)
        assert read(worker, after, 2) == {2.0}


@on_loop
async def test_versions_without_tables_or_memory_have_no_rows_to_change(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        await running.joined(0)
        with pytest.raises(NotFound):
            await running.mark(1.0)
        await running.switch(state_of(scale_plan(tmp_path, 1), marked_plan(tmp_path, 2)))

        with pytest.raises(NotFound):
            await running.mark(1.0, version=1)
        with pytest.raises(NotFound):
            await running.mark(1.0, version=3)


@on_loop
async def test_superseded_rows_are_freed_when_workers_have_released_them(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await running.switch(state_of(marked_plan(tmp_path, 1)))
        for marker in (1.0, 2.0):
            epoch = await running.mark(marker)
        ((_, store),) = running.stores.stores("m")
        assert sum(one.retired_rows for one in (await store.look()).tables) == 2 * ROWS

        worker.say(Released("m", epoch))

        await until(lambda: running.transactions.floor("m") == epoch)
        await settled(running)
        assert sum(one.retired_rows for one in (await store.look()).tables) == 0


@on_loop
async def test_rows_can_change_for_ever_while_workers_keep_up(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        epoch = await running.switch(state_of(marked_plan(tmp_path, 1, arena_rows=3 * ROWS)))

        for marker in range(50):
            epoch = await running.mark(float(marker))
            running.release(epoch)
            await until(lambda: running.transactions.floor("m") == epoch)  # noqa: B023
            await settled(running)

        assert asked(worker, epoch)[0].number == 1
        assert read(worker, epoch, 51) == {49.0}


# --- growth ---------------------------------------------------------------------------------------


@on_loop
async def test_a_generation_that_is_nearly_full_gives_way_to_a_larger_one(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await running.switch(state_of(marked_plan(tmp_path, 1, arena_rows=ROWS)))

        await running.mark(4.0)

        def current() -> GenerationPlan:
            ((generation, _),) = running.stores.stores("m")
            return generation

        await until(lambda: current().number > 1)
        epoch = running.words.load(0)
        assert asked(worker, epoch) == (current(),)
        assert read(worker, epoch, current().store_version) == {4.0}
        running.release(epoch)
        await settled(running)
        epoch = await running.mark(5.0)
        assert read(worker, epoch, current().store_version) == {5.0}


@on_loop
async def test_rows_that_do_not_fit_are_refused_or_get_room_where_they_are_announced(
    tmp_path: Path, no_spare_room: None
) -> None:
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        before = await running.switch(state_of(marked_plan(tmp_path, 1, arena_rows=ROWS // 2)))
        with pytest.raises(NoRoom):
            await running.mark(1.0)
        assert running.words.load(0) == before

        epoch = await running.stores.change(
            "m", 1, marking(1.0), running.decide, rows={0: ROWS, 1: ROWS}
        )

        ((generation, _),) = running.stores.stores("m")
        assert generation.number > 1
        assert read(worker, epoch, generation.store_version) == {1.0}


@on_loop
async def test_memory_that_is_not_to_be_had_refuses_a_change_in_the_words_of_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow(writer: StoreWriter, capacities: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    async with desk(tmp_path) as running:
        await running.joined(0)
        await running.switch(state_of(marked_plan(tmp_path, 1, arena_rows=ROWS)))
        await running.mark(1.0)
        monkeypatch.setattr(StoreWriter, "grow", grow)

        with pytest.raises(Unavailable, match="get no more room: Cannot allocate memory"):
            await running.stores.change(
                "m", 1, marking(2.0), running.decide, dict.fromkeys((0, 1), ROWS)
            )


@on_loop
async def test_an_old_generation_goes_when_nobody_reads_it(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        await running.switch(state_of(marked_plan(tmp_path, 1, arena_rows=ROWS)))
        await running.mark(4.0)
        await until(lambda: running.stores.stores("m")[0][0].number > 1)
        assert len(running.stores.stores("m")[0][1].numbers) == 2

        worker.say(Released("m", running.words.load(0)))

        await until(lambda: len(running.stores.stores("m")[0][1].numbers) == 1)


# --- another supervisor ---------------------------------------------------------------------------


@on_loop
async def test_rows_of_a_supervisor_that_is_gone_are_replaced_by_fresh_ones(
    tmp_path: Path,
) -> None:
    state = state_of(marked_plan(tmp_path, 1, marker=9.0))
    held = HeldModel(0, (6,), with_generation(state, GenerationPlan(1, 1, 3)))
    words = SharedWords.create(4)
    words.store(0, 6)
    elder = StandIn(0)
    async with desk(tmp_path, incarnation=2, words=words, earlier=[(elder, held)]) as running:
        assert running.transactions.adopted() == {"m": state}
        assert running.transactions.is_orphaned("m")
        assert running.transactions.lacks("m")
        assert running.stores.stores("m") == ()
        late = running.worker(1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(isinstance(one, Prepare) for one in late.heard)
        assert running.transactions.joined() == {WorkerId(0, 1)}

        epoch = await running.switch(running.transactions.adopted()["m"])

        await late.hear(Joined)
        number = first_number(2) + 1
        for worker in (elder, late):
            assert asked(worker, epoch) == (GenerationPlan(1, number, 1),)
            assert read(worker, epoch, 1) == {9.0}
        assert not running.transactions.lacks("m")


@on_loop
async def test_a_worker_joins_without_rows_that_nobody_can_make_or_serve_any_more(
    tmp_path: Path,
) -> None:
    state = state_of(marked_plan(tmp_path, 1))
    held = HeldModel(0, (6,), with_generation(state, GenerationPlan(1, 1, 3)))
    words = SharedWords.create(4)
    words.store(0, 6)
    elder = StandIn(0)
    async with desk(tmp_path, incarnation=2, words=words, earlier=[(elder, held)]) as running:
        late = running.worker(1)
        running.transactions.give_up("m")
        assert not any(isinstance(one, Joined) for one in late.heard)
        elder.die()
        await until(lambda: len(running.pool) == 1)

        running.transactions.give_up("m")

        await late.hear(Joined)


# --- what is shown --------------------------------------------------------------------------------


@on_loop
async def test_tables_and_rows_are_shown_as_requests_read_them(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        await running.joined(0)
        await running.switch(state_of(marked_plan(tmp_path, 1)))
        await running.mark(2.0)

        def states() -> dict[str, StatePlan]:
            state = running.transactions.current["m"].state
            return {} if state is None else {"m": state}

        tables = TableAdministration(running.stores, states, tuple)

        first, _ = await tables.tables("m")
        assert (first.name, first.rows, first.dim, first.dtype) == ("a", ROWS, 4, "f32")
        known = int(keys(0)[5])
        found, unsigned, missing = await tables.rows("m", "a", [known, known % 2**64, 12345])
        assert (found.found, found.values, found.norm) == (True, [2.0] * 4, 4.0)
        assert unsigned.values == found.values
        assert (missing.found, missing.values, missing.norm) == (False, [], None)
        with pytest.raises(NotFound, match="'a', 'b'"):
            await tables.rows("m", "c", [1])
        with pytest.raises(InvalidInput, match="64-bit"):
            await tables.rows("m", "a", [2**64])


@on_loop
async def test_a_scrape_shows_how_full_a_store_is_and_who_reads_it(tmp_path: Path) -> None:
    async with desk(tmp_path) as running:
        await running.joined(0)
        await running.switch(state_of(marked_plan(tmp_path, 1)))
        await running.mark(2.0)
        await running.stores.stores("m")[0][1].look()
        state = running.transactions.current["m"].state
        assert state is not None

        values = store_values(
            "m", state, running.stores.stores("m"), running.transactions.leases("m")
        )

        shown = {(one.name.removeprefix("anabranch_store_"), *one.labels[1:]): one.value
                 for one in values}  # fmt: skip
        assert shown["rows", "a"] == ROWS
        assert shown["arena_used_ratio",] == 0.25
        assert shown["leases",] == 1
        assert shown["bytes", "index"] > 0
        assert shown["bytes", "base"] > 2 * ROWS * 16


# --- what is left ---------------------------------------------------------------------------------


@on_loop
async def test_fifty_switches_of_versions_leave_one_generation(tmp_path: Path) -> None:
    before = memories()
    async with desk(tmp_path) as running:
        worker = await running.joined(0)
        for number in range(1, 51):
            epoch = await running.switch(state_of(marked_plan(tmp_path, number)))
            worker.say(Released("m", epoch))
            await until(lambda: running.transactions.floor("m") == epoch)  # noqa: B023
        await settled(running)
        close_received(worker)
        await until(lambda: memories() <= before + 1)
        gone = await running.switch(None)
        worker.say(Released("m", gone))
        close_received(worker)
        await until(lambda: memories() <= before)
