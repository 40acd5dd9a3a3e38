"""How the whole server stands: its workers, what they serve, whether it is ready."""

import asyncio
from collections.abc import Mapping, Sequence

from anabranch_server.describe import WorkerView
from anabranch_server.describe.workers import WorkerState
from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor.effects import WorkerId
from anabranch_server.supervisor.readiness import Standing, obstacle
from anabranch_server.supervisor.transactions import Transactions
from anabranch_server.supervisor.workers import Pool, Worker
from anabranch_wire.errors import Unavailable

__all__ = ["Overview"]


class Overview:
    """Puts together what others own; a `Readiness`. Event loop.

    Args:
        pool: workers that live.
        transactions: what they serve.
        first_look_done: set once all that the first look found was served or refused.
        allow_empty: whether no model at all is enough to be ready.
        has_been_ready: whether the server was, under an earlier supervisor.

    Attributes:
        has_been_ready: whether it was, up to now.
        is_draining: whether a stop was asked for; set by its owner.
    """

    def __init__(
        self,
        pool: Pool,
        transactions: Transactions,
        first_look_done: asyncio.Event,
        *,
        allow_empty: bool,
        has_been_ready: bool,
    ) -> None:
        self.has_been_ready = has_been_ready
        self.is_draining = False
        self._pool = pool
        self._transactions = transactions
        self._first_look_done = first_look_done
        self._allow_empty = allow_empty

    @property
    def is_serving(self) -> bool:
        """Whether requests are being answered, so that nothing must disturb them."""
        return self.has_been_ready or self._first_look_done.is_set()

    def check_ready(self) -> None:
        """Return when the server is ready.

        Raises:
            Unavailable: it is not; says why.
        """
        reason = self.obstacle()
        if reason is not None:
            raise Unavailable(reason)

    def obstacle(self) -> str | None:
        """Return why the server is not ready; None when it is."""
        reason = obstacle(
            Standing(
                is_draining=self.is_draining,
                has_been_ready=self.has_been_ready,
                has_looked=self._first_look_done.is_set(),
                serving_workers=len(self.serving_pids()),
                states=self.states(),
                allow_empty=self._allow_empty,
            )
        )
        self.has_been_ready |= reason is None
        return reason

    def states(self) -> Mapping[str, StatePlan]:
        """Return what each model serves."""
        return {
            model: change.state
            for model, change in self._transactions.current.items()
            if change.state is not None
        }

    def workers(self) -> Sequence[WorkerView]:
        """Return every worker process, by index."""
        joined = self._transactions.joined()
        return [
            WorkerView(
                index=worker.id.index,
                pid=worker.pid,
                state=self._state(worker, joined),
                started=worker.started,
                restarts=worker.id.incarnation - 1,
                snapshots=_snapshots(self._transactions.served_by(worker.id)),
            )
            for worker in self._pool
        ]

    def serving_pids(self) -> list[int]:
        """Return the processes that answer requests, by index."""
        joined = self._transactions.joined()
        return [worker.pid for worker in self._pool if worker.is_open and worker.id in joined]

    def _state(self, worker: Worker, joined: set[WorkerId]) -> WorkerState:
        if self.is_draining:
            return "draining"
        return "serving" if worker.is_open and worker.id in joined else "starting"


def _snapshots(states: Mapping[str, StatePlan]) -> dict[str, str]:
    """Return model name -> snapshot that answers by default, such as `42+17`."""
    return {
        model: f"{plan.version}+{plan.delta}" if plan.delta else str(plan.version)
        for model, state in states.items()
        for plan in state.versions
        if plan.version == state.default
    }
