"""A queue with the executors that take from it, and when they will have worked it off.

Plain bookkeeping without a clock or a lock: its owner guards it and passes the time in.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from anabranch_runtime.executor import Executor
from anabranch_runtime.pending import PendingQueue
from anabranch_runtime.requests import Ticket

__all__ = ["Lane", "start_of"]

_SPARE: Final = 0.1
"""Of an expected wait, kept free: batches differ, and who is admitted only to expire in the queue
learns it late and has taken the place of somebody else."""


class Lane:
    """Some executors of a group and the requests that wait for them.

    Attributes:
        pending: what waits.
        executors: who takes it.
        idle: those of them that sleep; the last one is woken first.
        latest: `time.monotonic()` at which all of them will be free, or before.
    """

    def __init__(self, executors: Sequence[Executor], levels: int) -> None:
        self.pending = PendingQueue(levels)
        self.executors = executors
        self.idle: list[Executor] = []
        self.latest = 0.0

    def begin(self, executor: Executor, batch: list[Ticket], now: float) -> None:
        """Note that an executor is given a batch."""
        executor.begin(batch, now)
        self.latest = max(self.latest, executor.until)

    def rest(self, executor: Executor) -> None:
        """Let an executor of this lane sleep."""
        executor.begin([], 0.0)
        self.idle.append(executor)

    def rouse(self) -> Executor:
        """Take the executor that fell asleep last off the idle ones; its `wake` is to be released.

        There is one.
        """
        return self.idle.pop()

    def is_too_late(self, ticket: Ticket, now: float) -> bool:
        """Whether a request that comes now is expected to miss its deadline, or to meet it barely.

        What is computed is taken as it was measured, what waits as if it met in full batches, and
        executors as if they shared it evenly: it hardly goes faster. One that comes too late
        already is left to `PendingQueue.take`, since no queue is to blame.
        """
        request, pace = ticket.request, ticket.version.pace
        own_s = pace.run_s(request.rows)
        deadline = now + (request.deadline - now) / (1.0 + _SPARE)
        # As if one executor had everything: who has as much time is in time, and most have.
        if max(self.latest, now) + self.pending.total_s + own_s <= deadline:
            return False
        if self.idle or request.deadline <= now:
            return False
        ahead = self.pending.work_s(request.priority)
        untils = [executor.until for executor in self.executors]
        # With the others in one batch, or behind them.
        earliest = max(
            start_of(untils, 0.0, now) + own_s,
            start_of(untils, ahead + pace.share_s(request.rows), now),
        )
        return earliest > deadline

    def drain_s(self, now: float) -> float:
        """Seconds until an executor is free and nothing waits, if nothing else comes."""
        untils = [executor.until for executor in self.executors]
        return start_of(untils, self.pending.work_s(None), now) - now

    def load(self) -> int:
        """Requests that wait, and executors that are at work."""
        return self.pending.requests + len(self.executors) - len(self.idle)


def start_of(untils: Iterable[float], work_s: float, now: float) -> float:
    """Return when executors will have done `work_s` seconds of work that they share evenly.

    Args:
        untils: when each of them is free; at least one.
        work_s: seconds of one executor.
        now: nobody is free before.
    """
    taken = 0.0
    start = now
    for count, until in enumerate(sorted([max(until, now) for until in untils]), 1):
        if count > 1 and start <= until:
            break
        taken += until
        start = (work_s + taken) / count
    return start
