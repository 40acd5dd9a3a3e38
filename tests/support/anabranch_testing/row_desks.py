"""A supervisor's half whose rows are real: stores and transactions; workers are stand-ins."""

import gc
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from anabranch_runtime.shared_words import SharedWords
from anabranch_runtime.store import Generation, Segment
from anabranch_server.metrics.totals import Totals
from anabranch_server.processes.messages import HeldModel, Joined, Prepare, Released
from anabranch_server.processes.plans import GenerationPlan, StatePlan
from anabranch_server.supervisor.stores import Stores
from anabranch_server.supervisor.transactions import Transactions, TransactionSettings
from anabranch_server.supervisor.workers import Pool
from anabranch_testing.marked_rows import keys, marking
from anabranch_testing.stand_ins import StandIn, until

__all__ = [
    "Desk",
    "asked",
    "close_received",
    "desk",
    "memories",
    "read",
    "settled",
    "with_generation",
]


@dataclass
class Desk:
    """A supervisor's half: transactions with stores, and stand-ins for its workers."""

    words: SharedWords
    stores: Stores
    transactions: Transactions
    pool: Pool
    workers: list[StandIn] = field(default_factory=list)
    decided: list[int] = field(default_factory=list)
    available: Callable[[], int | None] = lambda: None  # bytes of memory that is left

    def worker(self, index: int, incarnation: int = 1) -> StandIn:
        """Attach a worker that prepares whatever it is told and has said hello."""
        worker = StandIn(index, incarnation)
        self.workers.append(worker)
        worker.attach(self.pool)
        worker.prepare_all()
        worker.greet()
        return worker

    async def joined(self, index: int, incarnation: int = 1) -> StandIn:
        """Attach a worker, and wait until it has joined."""
        worker = self.worker(index, incarnation)
        await worker.hear(Joined)
        return worker

    async def decide(self, epoch: int) -> None:
        """Make a decision durable."""
        self.decided.append(epoch)

    async def switch(self, state: StatePlan | None) -> int:
        """Switch the model to a state."""
        return await self.transactions.switch("m", state, self.decide)

    async def mark(self, marker: float, version: int = 1) -> int:
        """Give every row a marker."""
        return await self.stores.change("m", version, marking(marker), self.decide)

    def release(self, epoch: int) -> None:
        """Let every worker release what is older."""
        for worker in self.workers:
            worker.say(Released("m", epoch))


@asynccontextmanager
async def desk(
    folder: Path,
    *,
    incarnation: int = 1,
    words: SharedWords | None = None,
    available: Callable[[], int | None] = lambda: None,
    earlier: Sequence[tuple[StandIn, HeldModel]] = (),
) -> AsyncIterator[Desk]:
    """Run a desk until the block ends."""
    page = words or SharedWords.create(4)
    stores = Stores("map", incarnation, lambda: running.available())
    transactions = Transactions(
        page, TransactionSettings(20.0, 20.0, incarnation, 1), participants=[stores]
    )
    stores.attach(transactions)
    pool = Pool(transactions, Totals(folder / "totals", "0" * 16), 20.0)
    running = Desk(page, stores, transactions, pool, available=available)
    for worker, held in earlier:
        running.workers.append(worker)
        worker.attach(pool)
        worker.prepare_all()
        worker.greet(is_open=True, models={"m": held})
    try:
        await transactions.begin(pool)
        yield running
    finally:
        transactions.close()
        pool.close()
        await stores.close()
        for worker in running.workers:
            worker.close()


def read(worker: StandIn, epoch: int, store_version: int) -> set[float]:
    """Return every number of both tables, as a worker sees them that maps what it was given."""
    base, memory = worker.fds[epoch][:2]
    generation = Generation.map(memory, Segment.map(base))
    numbers: set[float] = set()
    for table in (0, 1):
        rows, found = generation.rows(table, keys(table), store_version)
        assert found.all()
        numbers |= set(np.unique(rows).tolist())
    return numbers


def with_generation(state: StatePlan, generation: GenerationPlan) -> StatePlan:
    """Return a state as workers have it."""
    return msgspec.structs.replace(state, generations=(generation,))


def asked(worker: StandIn, epoch: int) -> tuple[GenerationPlan, ...]:
    """Return the generations of a `Prepare`."""
    told = [one for one in worker.heard if isinstance(one, Prepare) and one.epoch == epoch]
    assert told[-1].state is not None
    return told[-1].state.generations


def memories() -> int:
    """Return how many mappings of shared memory that are no words or counters this process has."""
    gc.collect()
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "memfd:anabranch-generation" in line})


def close_received(worker: StandIn) -> None:
    """Close what a stand-in was given."""
    for fds in worker.fds.values():
        for fd in fds:
            os.close(fd)
    worker.fds.clear()


async def settled(running: Desk) -> None:
    """Wait until nothing is at work on a store."""
    for _, store in running.stores.stores("m"):
        await until(lambda: not store.is_busy)  # noqa: B023
