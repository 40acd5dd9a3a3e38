"""Deltas in a worker: the same engine as long as the graph is, and nothing that grows with them."""

import asyncio
import gc
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.counters import CountersReader
from anabranch_runtime.ranking.plans import FeaturePlan, RankingPlan, SinkPlan, TensorFill
from anabranch_runtime.served import Freshness, ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import Capacity, Segment, StoreWriter
from anabranch_server.processes.messages import Ack, CannotPrepare, FromWorker, Prepare, Released
from anabranch_server.processes.plans import GenerationPlan, StatePlan, VersionPlan
from anabranch_server.worker.builds import Builds
from anabranch_server.worker.counting import Counting
from anabranch_server.worker.shelf import Shelf
from anabranch_server.worker.stock import Stock, WorkerPlace
from anabranch_testing.event_loops import on_loop
from anabranch_testing.marked_rows import marked_plan, marking
from anabranch_testing.stand_ins import until
from anabranch_testing.workers import scale_plan, state_of
from anabranch_wire.errors import AnabranchError
from anabranch_wire.snapshots import Snapshot


class Worker:
    """A stock and what is around it."""

    def __init__(self) -> None:
        self.words = SharedWords.create(2)
        self.said: list[FromWorker] = []
        self.catalog = Catalog(self.words)
        self.counting = Counting(0, self.catalog)
        self.epoch = 0
        place = WorkerPlace(0, 1, 1 << 20)
        self.stock = Stock(place, self.catalog, self.counting, Builds(60.0), self.said.append)

    async def prepare(self, state: StatePlan, fds: Sequence[int] = ()) -> int:
        """Prepare a state for the next epoch, and return that."""
        self.epoch += 1
        told = Prepare("m", 0, self.epoch, state, urgent=True)
        self.stock.prepare(told, [os.dup(fd) for fd in fds])
        answers = (Ack, CannotPrepare)
        await until(lambda: any(isinstance(one, answers) for one in self.said))
        answer = next(one for one in self.said if isinstance(one, answers))
        assert answer == Ack("m", self.epoch, 1)
        return self.epoch

    async def switch(self, state: StatePlan, fds: Sequence[int] = ()) -> ServedVersion:
        """Make a state current, wait until what was before is released; returns what answers."""
        epoch = await self.prepare(state, fds)
        self.words.store(0, epoch)
        await until(lambda: Released("m", epoch) in self.said)
        self.said.clear()
        return self.catalog.resolve("m")

    @property
    def shelf(self) -> Shelf:
        return self.stock._shelves["m"]

    def group(self) -> SessionGroup:
        (group,) = self.shelf.groups
        return group

    def engines(self) -> int:
        """Return how many engines there are."""
        return len(self.group()._engines._engines)

    def kept(self) -> tuple[int, ...]:
        """Return the lengths of everything that is kept for versions that come and go."""
        shelf, group = self.shelf, self.group()
        engines, executors = group._engines, group._executors
        gc.collect()
        return (
            len(shelf.states),
            len(shelf._leaving),
            sum(len(one) for one in shelf._running.values()),
            len(shelf.generations),
            len(engines._engines),
            sum(engines._watched.values()),
            sum(engines._plans.values()),
            sum(len(one.lookups._stagings) for one in executors),
            len(self.stock._preparing),
            len(CountersReader(self.counting.page.fd).read()),
            sum(isinstance(one, ServedVersion) for one in gc.get_objects()),
        )


class Rows:
    """The rows of a version, as a supervisor writes them."""

    def __init__(self, plan: VersionPlan) -> None:
        assert plan.store is not None
        self.plan = plan
        segment = Segment.open(Path(plan.store.segment))
        room = [Capacity(one.arena_rows, one.keys) for one in plan.store.capacities]
        self.writer = StoreWriter.create(segment, room)
        base = os.open(plan.store.segment, os.O_RDONLY)
        self.fds = (base, self.writer.fd)

    def change(self, delta: int) -> StatePlan:
        """Give every row the delta as a marker; returns the state that reads them."""
        with self.writer.begin() as change:
            marking(float(delta))(change)
            change.apply()
        return self.state(delta)

    def state(self, delta: int, **changed: object) -> StatePlan:
        """Return a state that reads the rows as they are."""
        plan = msgspec.structs.replace(self.plan, delta=delta, step=10 * delta, **changed)
        read = (GenerationPlan(1, 1, self.writer.version),)
        return msgspec.structs.replace(state_of(plan), generations=read)


def scale(folder: Path, delta: int, factor: float) -> VersionPlan:
    """Return a version whose delta brought another graph."""
    return msgspec.structs.replace(
        scale_plan(folder, 1, factor=factor, delta=delta), identity="sha256:1"
    )


def ranked(descending: bool) -> RankingPlan:
    """Return how the graph of `scale` ranks."""
    return RankingPlan(
        features=(
            FeaturePlan(name="x", side="candidate", type="float32", values=(SinkPlan(0, 0),)),
        ),
        tensors=(TensorFill("x", "FP32", (1,), False),),
        id="x",
        heads=("y",),
        weights=(1.0,),
        formula="head",
        descending=descending,
    )


@on_loop
async def test_hundreds_of_deltas_of_rows_build_no_engine_and_leave_nothing(
    tmp_path: Path,
) -> None:
    worker, rows = Worker(), Rows(marked_plan(tmp_path, 1))
    served = await worker.switch(rows.state(0), rows.fds)
    token, model = served.token, served.model
    del served
    Path(rows.plan.path).unlink()  # noqa: ASYNC240 - nothing is built from it any more
    kept: list[tuple[int, ...]] = []

    for delta in range(1, 301):
        served = await worker.switch(rows.change(delta), rows.fds)
        rows.writer.reclaim(rows.writer.version)
        assert served.snapshot == Snapshot("m", 1, delta)
        assert served.freshness == Freshness(10 * delta)
        assert (served.token, served.model) == (token, model)
        del served
        if delta % 50 == 0:
            await until(lambda: sum(worker.group()._engines._watched.values()) <= 1)
            kept.append(worker.kept())

    assert len(set(kept)) == 1
    assert worker.engines() == 1
    assert worker.stock.close()


@on_loop
async def test_a_delta_of_weights_is_built_and_the_engine_before_is_freed(tmp_path: Path) -> None:
    worker = Worker()
    tokens = set()

    for delta in range(8):
        served = await worker.switch(state_of(scale(tmp_path, delta, 1.0 + delta)))
        assert served.snapshot.delta == delta
        tokens.add(served.token)
        del served
        await until(lambda: worker.engines() == 1)

    assert len(tokens) == 8
    assert worker.stock.close()


@on_loop
async def test_a_delta_of_nothing_but_a_step_needs_no_build(tmp_path: Path) -> None:
    worker, plan = Worker(), scale(tmp_path, 0, 2.0)
    before = await worker.switch(state_of(plan))
    Path(plan.path).unlink()  # noqa: ASYNC240

    later = msgspec.structs.replace(plan, delta=1, step=5, event_time=7.0)
    # Who holds a version of before keeps it, so that is not waited for here.
    epoch = await worker.prepare(state_of(later))
    worker.words.store(0, epoch)
    after = worker.catalog.resolve("m")

    assert after is not before
    assert after.token == before.token
    assert after.snapshot == Snapshot("m", 1, 1)
    assert after.freshness == Freshness(5, 7.0)
    assert before.snapshot == Snapshot("m", 1, 0)
    assert worker.stock.close()


@on_loop
async def test_another_ranking_is_made_anew_on_the_same_engine(tmp_path: Path) -> None:
    worker = Worker()
    plan = msgspec.structs.replace(scale(tmp_path, 0, 2.0), ranking=ranked(descending=True))
    served = await worker.switch(state_of(plan))
    token, rules = served.token, served.ranking
    del served
    Path(plan.path).unlink()  # noqa: ASYNC240
    same = msgspec.structs.replace(plan, delta=1)
    other = msgspec.structs.replace(plan, delta=2, ranking=ranked(descending=False))

    served = await worker.switch(state_of(same))
    assert served.ranking is rules
    del served
    served = await worker.switch(state_of(other))

    assert served.token == token
    assert served.ranking is not None
    assert served.ranking is not rules
    assert worker.stock.close()


@on_loop
async def test_a_ranking_that_cannot_be_made_refuses_the_delta(tmp_path: Path) -> None:
    worker = Worker()
    plan = msgspec.structs.replace(scale(tmp_path, 0, 2.0), ranking=ranked(descending=True))
    served = await worker.switch(state_of(plan))
    wrong = msgspec.structs.replace(ranked(descending=True), heads=("z",))

    told = Prepare(
        "m", 0, 2, state_of(msgspec.structs.replace(plan, delta=1, ranking=wrong)), urgent=True
    )
    worker.stock.prepare(told, [])
    await until(lambda: bool(worker.said))

    (refused,) = worker.said
    assert isinstance(refused, CannotPrepare)
    assert "ranking" in refused.error
    assert worker.catalog.resolve("m") is served
    assert worker.stock.close()


@on_loop
async def test_rows_and_weights_of_a_delta_change_at_one_moment(tmp_path: Path) -> None:
    worker, rows = Worker(), Rows(marked_plan(tmp_path, 1))
    before = await worker.switch(rows.state(0), rows.fds)
    other = tmp_path / "other.onnx"
    await asyncio.to_thread(other.write_bytes, Path(rows.plan.path).read_bytes())  # noqa: ASYNC240
    rows.change(1)

    epoch = await worker.prepare(rows.state(1, path=str(other)), rows.fds)
    assert worker.catalog.resolve("m") is before
    worker.words.store(0, epoch)
    after = worker.catalog.resolve("m")

    assert after.token != before.token
    assert after.source is not None
    assert before.source is not None
    assert (before.source.view.version, after.source.view.version) == (1, 2)
    assert worker.stock.close()


@on_loop
async def test_the_same_rows_under_another_state_are_the_same_version(tmp_path: Path) -> None:
    worker, rows = Worker(), Rows(marked_plan(tmp_path, 1))
    before = await worker.switch(rows.change(1), rows.fds)
    run_once_more = rows.state(1, published=9.0)

    epoch = await worker.prepare(run_once_more, rows.fds)
    worker.words.store(0, epoch)

    assert worker.catalog.resolve("m") is before
    assert worker.stock.close()


@pytest.mark.parametrize("delta", [0, 1])
@on_loop
async def test_a_version_with_tables_is_not_served_without_rows(tmp_path: Path, delta: int) -> None:
    worker, rows = Worker(), Rows(marked_plan(tmp_path, 1))
    if delta:
        await worker.switch(rows.state(0), rows.fds)
    state = msgspec.structs.replace(rows.state(delta), generations=())

    worker.stock.prepare(Prepare("m", 0, worker.epoch + 1, state, urgent=True), [])
    await until(lambda: bool(worker.said))

    assert isinstance(worker.said[0], CannotPrepare)
    if not delta:
        with pytest.raises(AnabranchError):
            worker.catalog.resolve("m")
    await until(worker.stock.close)  # a group that ran nothing may be closing still
