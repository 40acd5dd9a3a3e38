"""What the admin doors may ask of a server, over HTTP, gRPC and the status page alike.

The supervisor implements it; doors only translate. Everything belongs to the supervisor's event
loop; other threads go through `asyncio.run_coroutine_threadsafe`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from anabranch_server.config import LogLevel
from anabranch_server.describe import IndexEntry, ModelView, WorkerView
from anabranch_server.describe.differences import DifferenceView

__all__ = [
    "Action",
    "ActionRequest",
    "Administration",
    "LogView",
    "OperationState",
    "OperationView",
    "RowView",
    "TableView",
]

Action = Literal["load", "unload", "reload", "rollback", "unpin"]

OperationState = Literal["RUNNING", "DONE", "FAILED", "CANCELLED"]


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """What an action is told.

    Attributes:
        version: version it is about; None is what the policy says, or all.
        delta: of `rollback`; None is the one that the version is at in memory, or its newest.
        force: of `reload`: try broken versions and deltas again although nothing changed.
        unpin: of `reload`: release a hold first.
        wait_s: how long the caller waits for the end.
    """

    version: int | None = None
    delta: int | None = None
    force: bool = False
    unpin: bool = False
    wait_s: float = 30.0


@dataclass(frozen=True, slots=True)
class OperationView:
    """An action, at work or done. Times in seconds since 1970.

    Attributes:
        id: names it, as `op-000123`.
        action: what was asked for.
        model: model it is about.
        state: how far it is.
        phase: what it does now.
        progress: 0 to 1, where it is known.
        bytes_done: of the phase.
        bytes_total: of the phase; 0 where it is not known.
        started: when.
        ended: when; null while it runs.
        error: why it failed.
    """

    id: str
    action: Action
    model: str
    state: OperationState
    phase: str | None
    progress: float | None
    bytes_done: int
    bytes_total: int
    started: float
    ended: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class LogView:
    """What is logged.

    Attributes:
        level: least level that is written.
        access: whether every request gets a line.
    """

    level: LogLevel
    access: bool


@dataclass(frozen=True, slots=True)
class TableView:
    """A table that lookups read.

    Attributes:
        name: its name.
        rows: keys that it holds now.
        dim: numbers per row.
        dtype: how they are kept: f32, f16, bf16 or int8.
        keys: `hashed`, or `dense_id` where keys are row numbers.
        bytes: memory of its rows and index, once for all workers.
        load: keys per place of the index; 1 for row numbers.
        mean_probe: cache lines of the index that finding a key looks at.
        hits: keys that requests found in it.
        misses: keys that requests did not find in it.
    """

    name: str
    rows: int
    dim: int
    dtype: str
    keys: str
    bytes: int
    load: float
    mean_probe: float
    hits: int
    misses: int


@dataclass(frozen=True, slots=True)
class RowView:
    """A row of a table.

    Attributes:
        key: as it was asked for.
        found: whether the table holds it.
        values: its numbers; empty where it is not there.
        norm: their Euclidean length; null where it is not there.
        frequency: how often it was trained on; null: not known in this release.
        step: training step that changed it last; null: not known in this release.
        changed_by_delta: delta that wrote or deleted it last; null: none did, or it is not known
            any more which one did.
    """

    key: int
    found: bool
    values: list[float]
    norm: float | None
    frequency: int | None = None
    step: int | None = None
    changed_by_delta: int | None = None


class Administration(Protocol):
    """Looks after models and workers."""

    def models(self) -> list[ModelView]:
        """Return every model, by name."""
        ...

    def model(self, name: str) -> ModelView:
        """Return one model.

        Raises:
            NotFound: there is no such model.
        """
        ...

    def index(self, *, only_ready: bool) -> list[IndexEntry]:
        """Return every version by model name, then number, with its state and the reason."""
        ...

    async def act(self, action: Action, model: str, request: ActionRequest) -> OperationView:
        """Begin an action, wait up to `wait_s` for its end, and return it.

        Cancelling the wait leaves the action at work. A version that is refused makes the
        operation FAILED; that is no error of the call.

        Raises:
            NotFound: no such model, or no such version or delta of it.
            Conflict: an action on the model is at work already.
            InvalidInput: the request makes no sense for the action.
        """
        ...

    def operation(self, identity: str) -> OperationView:
        """Return an action that was begun.

        Raises:
            NotFound: none of that id, or it is long over.
        """
        ...

    def operations(self) -> Sequence[OperationView]:
        """Return the actions at work and the last ones that ended, newest first."""
        ...

    async def set_labels(self, model: str, labels: Mapping[str, int | None]) -> ModelView:
        """Merge labels into those set before; None removes one. Kept over restarts.

        Raises:
            NotFound: there is no such model.
            InvalidInput: a name is no label.
        """
        ...

    async def tables(self, model: str) -> Sequence[TableView]:
        """Return the tables of the version that answers by default; none where it has none.

        Raises:
            NotFound: there is no such model.
            Unavailable: they are being made anew.
        """
        ...

    async def rows(self, model: str, table: str, keys: Sequence[int]) -> Sequence[RowView]:
        """Return rows of a table of the version that answers by default, in the order of `keys`.

        Raises:
            NotFound: there is no such model, or it has no such table.
            InvalidInput: a key has more than 64 bits.
            Unavailable: the tables are being made anew.
        """
        ...

    async def diff(self, model: str, before: str, after: str) -> DifferenceView:
        """Return what differs between two snapshots of a model that lie in the repository.

        Raises:
            InvalidInput: one is no snapshot.
            NotFound: there is no such model or snapshot.
            Conflict: another comparison is at work.
            DeadlineExceeded: it takes too long.
            AnabranchError: files cannot be read.
        """
        ...

    def workers(self) -> Sequence[WorkerView]:
        """Return every worker process, by index."""
        ...

    def config(self) -> Mapping[str, object]:
        """Return the effective settings, secrets masked."""
        ...

    def log(self, level: str | None, access: bool | None) -> LogView:
        """Change what is logged, in every process, and return what is now; None leaves it.

        Raises:
            InvalidInput: there is no such level.
        """
        ...

    async def trace(self, seconds: float) -> bytes:
        """Record what workers do for some seconds and return Chrome's trace format, JSON.

        Raises:
            Conflict: a trace is being recorded.
        """
        ...

    def check_ready(self) -> None:
        """Return when the server is ready.

        Raises:
            Unavailable: it is not; says why.
        """
        ...
