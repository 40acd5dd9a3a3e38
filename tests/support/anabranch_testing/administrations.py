"""An administration in memory, for tests of the doors that translate to it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch_server.administration import (
    Action,
    ActionRequest,
    LogView,
    OperationView,
    RowView,
    TableView,
)
from anabranch_server.config import LogLevel
from anabranch_server.describe import FailureView, IndexEntry, ModelView, VersionView, WorkerView
from anabranch_server.describe.differences import DifferenceView
from anabranch_wire.errors import AnabranchError, Conflict, InvalidInput, NotFound, Unavailable

__all__ = ["MemoryAdministration", "model_view"]

LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


def model_view(name: str, *versions: int, **fields: Any) -> ModelView:
    """Return a model that serves `versions`, newest first as a rule."""
    shown: dict[str, Any] = {
        "state": "READY" if versions else "UNAVAILABLE",
        "pinned": None,
        "policy": {"latest": 1},
        "labels": {},
        "versions": [VersionView(number, "READY", 0) for number in versions],
        "last_error": None,
    }
    return ModelView(name, **(shown | fields))


@dataclass
class MemoryAdministration:
    """Does what it is asked to with values alone, and remembers what it was asked.

    Loads make the policy's version 43, or the one that is named; everything else a model has stays.

    Attributes:
        known: model name -> model.
        settings: effective settings.
        processes: the workers.
        asked: action, model and what it was told, for every action.
        refused: raised by the next action.
        broken: why every action fails, if it does.
        unready: why the server is not ready.
        gate: where set, actions end only once it is.
        kept_tables: model name -> its tables.
        kept_rows: model name and table -> key -> row.
        differences: model name and two snapshots -> what differs.
    """

    known: dict[str, ModelView] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    processes: Sequence[WorkerView] = ()
    asked: list[tuple[Action, str, ActionRequest]] = field(default_factory=list)
    refused: AnabranchError | None = None
    broken: str | None = None
    unready: str | None = None
    gate: asyncio.Event | None = None
    kept_tables: dict[str, list[TableView]] = field(default_factory=dict)
    kept_rows: dict[tuple[str, str], dict[int, list[float]]] = field(default_factory=dict)
    differences: dict[tuple[str, str, str], DifferenceView] = field(default_factory=dict)
    logged: LogView = field(default_factory=lambda: LogView("info", False))
    made: dict[str, OperationView] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def models(self) -> list[ModelView]:
        """See `Administration`."""
        return [self.known[name] for name in sorted(self.known)]

    def model(self, name: str) -> ModelView:
        """See `Administration`."""
        if name not in self.known:
            names = ", ".join(sorted(self.known)) or "none"
            raise NotFound(f"model {name[:200]!r} is not known; known: {names}")
        return self.known[name]

    def index(self, *, only_ready: bool) -> list[IndexEntry]:
        """See `Administration`."""
        entries = []
        for model in self.models():
            for version in reversed(model.versions):
                reason = version.last_error or ""
                entries.append(IndexEntry(model.name, str(version.version), version.state, reason))
            if not model.versions:
                entries.append(IndexEntry(model.name, "", "UNAVAILABLE", "no version is loaded"))
        return [entry for entry in entries if entry.state == "READY" or not only_ready]

    async def act(self, action: Action, model: str, request: ActionRequest) -> OperationView:
        """See `Administration`."""
        self.model(model)
        if self.refused is not None:
            refused, self.refused = self.refused, None
            raise refused
        if any(one.state == "RUNNING" and one.model == model for one in self.made.values()):
            raise Conflict(f"an action on {model!r} is at work already")
        self.asked.append((action, model, request))
        identity = f"op-{len(self.made) + 1:06}"
        self.made[identity] = OperationView(
            identity, action, model, "RUNNING", "building", 0.4, 4, 10, time.time(), None, None
        )
        task = asyncio.create_task(self._work(identity, request))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        await asyncio.wait({task}, timeout=request.wait_s)
        return self.made[identity]

    async def _work(self, identity: str, request: ActionRequest) -> None:
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        begun = self.made[identity]
        self.made[identity] = replace(
            begun,
            state="DONE" if self.broken is None else "FAILED",
            phase=None,
            progress=1.0,
            ended=time.time(),
            error=self.broken,
        )
        if self.broken is None:
            self._change(begun.action, self.known[begun.model], request)

    def _change(self, action: Action, model: ModelView, request: ActionRequest) -> None:
        numbers = {version.version for version in model.versions}
        if action == "load":
            model = model_view(model.name, *sorted(numbers | {request.version or 43})[::-1])
        elif action == "unload":
            numbers = numbers - {request.version} if request.version else set()
            model = model_view(model.name, *sorted(numbers, reverse=True))
        elif action == "rollback":
            held = f"{request.version}+{request.delta}" if request.delta else str(request.version)
            model = replace(model, pinned=held)
        elif action == "unpin":
            model = replace(model, pinned=None)
        self.known[model.name] = model

    def fail(self, model: str, error: str) -> None:
        """Note a failure of version 41 of a model."""
        failure = FailureView(1764417000.0, 41, None, "checksum", error)
        self.known[model] = replace(self.known[model], last_error=failure)

    async def tables(self, model: str) -> Sequence[TableView]:
        """See `Administration`."""
        self.model(model)
        return self.kept_tables.get(model, [])

    async def rows(self, model: str, table: str, keys: Sequence[int]) -> Sequence[RowView]:
        """See `Administration`."""
        self.model(model)
        if (model, table) not in self.kept_rows:
            raise NotFound(f"model {model!r} has no table {table!r}")
        known = self.kept_rows[model, table]
        return [RowView(key, key in known, known.get(key, []), 1.0) for key in keys]

    async def diff(self, model: str, before: str, after: str) -> DifferenceView:
        """See `Administration`."""
        self.model(model)
        found = self.differences.get((model, before, after))
        if found is None:
            raise NotFound(f"model {model!r} has no snapshot {before!r} or {after!r}")
        return found

    def operation(self, identity: str) -> OperationView:
        """See `Administration`."""
        if identity not in self.made:
            raise NotFound(f"operation {identity[:80]!r} is not known")
        return self.made[identity]

    def operations(self) -> Sequence[OperationView]:
        """See `Administration`."""
        return list(self.made.values())[::-1]

    async def set_labels(self, model: str, labels: Mapping[str, int | None]) -> ModelView:
        """See `Administration`."""
        shown = self.model(model)
        merged = {**shown.labels, **labels}
        kept = {name: number for name, number in merged.items() if number is not None}
        self.known[model] = replace(shown, labels=kept)
        return self.known[model]

    def workers(self) -> Sequence[WorkerView]:
        """See `Administration`."""
        return self.processes

    def config(self) -> Mapping[str, object]:
        """See `Administration`."""
        return self.settings

    def log(self, level: str | None, access: bool | None) -> LogView:
        """See `Administration`."""
        if level is not None:
            if level not in LEVELS:
                raise InvalidInput(f"level {level!r}: expected one of {', '.join(LEVELS)}")
            self.logged = replace(self.logged, level=level)
        if access is not None:
            self.logged = replace(self.logged, access=access)
        return self.logged

    async def trace(self, seconds: float) -> bytes:
        """See `Administration`."""
        return b'{"traceEvents": []}'

    def check_ready(self) -> None:
        """See `Administration`."""
        if self.unready is not None:
            raise Unavailable(self.unready)
