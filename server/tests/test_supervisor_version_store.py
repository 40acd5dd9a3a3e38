import asyncio
import gc
import os
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from anabranch_runtime.store import Capacity, Change, Growth, StoreWriter
from anabranch_server.processes.plans import StorePlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.version_store import VersionStore
from anabranch_testing.event_loops import on_loop
from anabranch_testing.marked_rows import DIM, keys, marked_plan, marking
from anabranch_wire.errors import Unavailable


def plan_in(folder: Path) -> StorePlan:
    plan = marked_plan(folder, 1).store
    assert plan is not None
    return plan


class Held:
    """Work on a store that waits in its thread until it may go on."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def hold(self) -> None:
        self.begun.set()
        assert self.may_end.wait(20)

    async def cancel(self, task: asyncio.Task[object]) -> None:
        """Cancel who waits for the work, and let the work come to its end afterwards."""
        await asyncio.to_thread(self.begun.wait, 20)
        task.cancel()
        await asyncio.sleep(0)
        self.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@on_loop
async def test_a_change_that_was_cancelled_while_it_was_prepared_is_given_back(
    tmp_path: Path,
) -> None:
    store = await VersionStore.create(plan_in(tmp_path), 1, 1, "map", None)
    held = Held()

    def fill(change: Change) -> None:
        marking(2.0)(change)
        held.hold()

    await held.cancel(asyncio.ensure_future(store.stage(0, [fill])))

    await store.stage(0, [marking(3.0)])
    await store.apply(0, 0)
    assert (await store.stats())[0].live_keys > 0
    await store.close()


@on_loop
async def test_a_growth_that_was_cancelled_while_it_began_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await VersionStore.create(plan_in(tmp_path), 1, 1, "map", None)
    room = [Capacity(2 * one.arena_rows, 2 * one.keys) for one in store.capacities]
    held, grow = Held(), StoreWriter.grow

    def held_grow(writer: StoreWriter, capacities: list[Capacity]) -> object:
        growth = grow(writer, capacities)
        held.hold()
        return growth

    monkeypatch.setattr(StoreWriter, "grow", held_grow)
    await held.cancel(asyncio.ensure_future(store.grow(room, None)))
    monkeypatch.undo()

    await store.take_over(await store.grow(room, None), room, 2)
    assert list(store.numbers) == [1, 2]
    await store.close()


@on_loop
async def test_a_generation_that_was_cancelled_while_it_took_over_is_the_one_that_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await VersionStore.create(plan_in(tmp_path), 1, 1, "map", None)
    room = [Capacity(2 * one.arena_rows, 2 * one.keys) for one in store.capacities]
    growth = await store.grow(room, None)
    held, finish = Held(), Growth.finish

    def held_finish(growth: Growth) -> StoreWriter:
        writer = finish(growth)
        held.hold()
        return writer

    monkeypatch.setattr(Growth, "finish", held_finish)
    await held.cancel(asyncio.ensure_future(store.take_over(growth, room, 2)))

    assert list(store.numbers) == [1, 2]
    assert list(store.capacities) == room
    await store.stage(0, [marking(3.0)])
    await store.apply(0, 0)
    values, found = await store.rows(store.newest, 0, keys(0))
    assert found.all()
    assert (values == 3.0).all()
    await store.close()


@on_loop
async def test_a_source_of_rows_that_cannot_be_had_is_no_lack_of_room(tmp_path: Path) -> None:
    store = await VersionStore.create(plan_in(tmp_path), 1, 1, "map", None)

    def fill(change: Change) -> None:
        marking(2.0)(change)
        raise Unavailable("the delta cannot be read")

    with pytest.raises(Unavailable, match="the delta cannot be read") as caught:
        await store.stage(0, [fill])

    assert not isinstance(caught.value, NoRoom)
    await store.close()


@on_loop
async def test_more_keys_than_a_table_may_have_are_a_lack_of_room_for_fresh_rows_too(
    tmp_path: Path,
) -> None:
    plan = plan_in(tmp_path)
    rooms = [msgspec.structs.replace(one, most_keys=one.keys) for one in plan.capacities]
    plan = msgspec.structs.replace(plan, capacities=tuple(rooms))
    store = await VersionStore.create(plan, 1, 1, "map", None)
    many = np.arange(10_000, 10_001 + rooms[0].keys)

    def fill(change: Change) -> None:
        change.upsert(0, many, np.ones((len(many), DIM), np.float32))

    with pytest.raises(NoRoom, match="has room for"):
        await store.renew(1, [fill], 2, None)

    assert list(store.numbers) == [1]
    await store.close()


@on_loop
async def test_a_store_that_was_cancelled_while_it_opened_leaves_no_descriptor(
    tmp_path: Path,
) -> None:
    plan, held = plan_in(tmp_path), Held()
    gc.collect()  # of tests before
    before = open_descriptors()

    await held.cancel(
        asyncio.ensure_future(
            VersionStore.create(plan, 1, 1, "map", None, [lambda change: held.hold()])
        )
    )

    assert open_descriptors() == before
