"""What the admin doors may ask, answered by the parts that know it."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast, get_args

from anabranch_server.administration import (
    Action,
    ActionRequest,
    LogView,
    OperationView,
    RowView,
    TableView,
)
from anabranch_server.config import LogConfig, LogLevel
from anabranch_server.describe import IndexEntry, ModelView, WorkerView
from anabranch_server.describe.differences import DifferenceView
from anabranch_server.differences import Comparer
from anabranch_server.logs import set_log_level
from anabranch_server.processes.messages import SetLog
from anabranch_server.supervisor.models import ModelAdministration
from anabranch_server.supervisor.tables import TableAdministration
from anabranch_wire.errors import InvalidInput

__all__ = ["Administrator"]

_log = logging.getLogger(__name__)


class Administrator:
    """An `Administration`. Belongs to the supervisor's event loop.

    Args:
        models: answers all that is about models.
        tables: answers all that is about their tables.
        workers: returns the worker processes.
        check_ready: raises while the server is not ready.
        set_log: changes what workers log.
        record: records a trace of so many seconds.
        shown: effective settings, secrets masked.
        logs: what is logged at first.
    """

    def __init__(
        self,
        models: ModelAdministration,
        tables: TableAdministration,
        workers: Callable[[], Sequence[WorkerView]],
        check_ready: Callable[[], None],
        set_log: Callable[[SetLog], None],
        record: Callable[[float], Awaitable[bytes]],
        shown: Mapping[str, object],
        logs: LogConfig,
    ) -> None:
        self._models = models
        self._tables = tables
        self._workers = workers
        self._check_ready = check_ready
        self._set_log = set_log
        self._record = record
        self._shown = shown
        self._log_view = LogView(logs.level, logs.access)
        self._comparer = Comparer()

    def models(self) -> list[ModelView]:
        """See `Administration`."""
        return self._models.models()

    def model(self, name: str) -> ModelView:
        """See `Administration`."""
        return self._models.model(name)

    def index(self, *, only_ready: bool) -> list[IndexEntry]:
        """See `Administration`."""
        return self._models.index(only_ready=only_ready)

    async def act(self, action: Action, model: str, request: ActionRequest) -> OperationView:
        """See `Administration`."""
        return await self._models.act(action, model, request)

    def operation(self, identity: str) -> OperationView:
        """See `Administration`."""
        return self._models.operation(identity)

    def operations(self) -> Sequence[OperationView]:
        """See `Administration`."""
        return self._models.operations()

    async def set_labels(self, model: str, labels: Mapping[str, int | None]) -> ModelView:
        """See `Administration`."""
        return await self._models.set_labels(model, labels)

    async def tables(self, model: str) -> Sequence[TableView]:
        """See `Administration`."""
        self._models.model(model)
        return await self._tables.tables(model)

    async def rows(self, model: str, table: str, keys: Sequence[int]) -> Sequence[RowView]:
        """See `Administration`."""
        self._models.model(model)
        return await self._tables.rows(model, table, keys)

    async def diff(self, model: str, before: str, after: str) -> DifferenceView:
        """See `Administration`."""
        return await self._comparer.compare(self._models.folder(model), before, after)

    def workers(self) -> Sequence[WorkerView]:
        """See `Administration`."""
        return self._workers()

    def config(self) -> Mapping[str, object]:
        """See `Administration`."""
        return self._shown

    def log(self, level: str | None, access: bool | None) -> LogView:
        """See `Administration`."""
        if level is not None and level not in get_args(LogLevel):
            raise InvalidInput(
                f"log level {level[:40]!r}: expected one of {', '.join(get_args(LogLevel))}"
            )
        before = self._log_view
        known = before.level if level is None else cast(LogLevel, level)
        self._log_view = LogView(known, before.access if access is None else access)
        if level is not None:
            set_log_level(known)
        if level is not None or access is not None:
            self._set_log(SetLog(level, access))
        return self._log_view

    async def trace(self, seconds: float) -> bytes:
        """See `Administration`."""
        return await self._record(seconds)

    def check_ready(self) -> None:
        """See `Administration`."""
        self._check_ready()
