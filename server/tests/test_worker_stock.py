"""What a worker keeps of states that come and go; the versions are real, the supervisor is not."""

import asyncio
from pathlib import Path

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.shared_words import SharedWords
from anabranch_server.processes.messages import Ack, FromWorker, Prepare
from anabranch_server.processes.plans import StatePlan
from anabranch_server.worker.builds import Builds
from anabranch_server.worker.counting import Counting
from anabranch_server.worker.stock import Stock, WorkerPlace
from anabranch_testing.event_loops import on_loop
from anabranch_testing.stand_ins import until
from anabranch_testing.workers import scale_plan, state_of


class Worker:
    """A stock and what is around it."""

    def __init__(self) -> None:
        self.words = SharedWords.create(2)
        self.said: list[FromWorker] = []
        catalog = Catalog(self.words)
        self.counting = Counting(0, catalog)
        self.stock = Stock(
            WorkerPlace(0, 1, 1 << 20),
            catalog,
            self.counting,
            Builds(60.0),
            self.said.append,
        )

    async def prepare(self, epoch: int, state: StatePlan, slot: int = 0) -> None:
        self.stock.prepare(Prepare("m", slot, epoch, state, urgent=True), [])
        await until(lambda: Ack("m", epoch, 1) in self.said)


@on_loop
async def test_what_was_prepared_and_aborted_is_retired_like_what_was_served(
    tmp_path: Path,
) -> None:
    first, second = scale_plan(tmp_path, 1), scale_plan(tmp_path, 2)
    worker = Worker()
    await worker.prepare(1, state_of(first))
    worker.words.store(0, 1)
    assert len(worker.counting.retirement) == 0

    await worker.prepare(2, state_of(first, second))
    worker.stock.abort("m", 2)

    assert [one.version for one in worker.counting.retirement.due(1e12)] == [2]
    assert worker.stock.close()


@on_loop
async def test_what_was_not_prepared_for_a_lost_supervisor_never_is(tmp_path: Path) -> None:
    """The next one knows only what it is told: it may give the model another word."""
    worker = Worker()
    worker.words.store(0, 1)  # it is current: whoever prepared it has died meanwhile
    worker.stock.prepare(Prepare("m", 0, 1, state_of(scale_plan(tmp_path, 1)), urgent=True), [])
    await asyncio.sleep(0)

    worker.stock.abandon()
    told = dict(worker.stock.held())
    await asyncio.sleep(0.01)  # the hello and its answer are on their way
    await worker.prepare(2, state_of(scale_plan(tmp_path, 2)), slot=1)

    assert told == {}
    assert worker.said == [Ack("m", 2, 1)]
    assert [(one.slot, one.epochs) for one in worker.stock.held().values()] == [(1, (2,))]
    assert worker.stock.close()
