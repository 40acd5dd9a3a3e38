"""What the admin doors may ask while everything is one process: looking, not changing."""

import os
from collections.abc import Mapping, Sequence

from anabranch_runtime.catalog import ServingState
from anabranch_server.administration import Action, ActionRequest, LogView, OperationView
from anabranch_server.describe import FailureView, IndexEntry, ModelView, VersionView, WorkerView
from anabranch_server.loading import Loader
from anabranch_server.worker import Worker
from anabranch_wire.errors import NotFound, Unsupported

__all__ = ["SingleAdministration"]


class SingleAdministration:
    """An `Administration` over the one worker of this process.

    Args:
        config: effective settings, secrets masked.
        worker: what answers requests.
        loader: what loads models.
    """

    def __init__(self, config: Mapping[str, object], worker: Worker, loader: Loader) -> None:
        self._config = config
        self._worker = worker
        self._loader = loader

    def models(self) -> list[ModelView]:
        """See `Administration`."""
        failures = self._loader.failures()
        states = self._worker.catalog.states
        return [_view(name, state, failures.get(name)) for name, state in sorted(states.items())]

    def model(self, name: str) -> ModelView:
        """See `Administration`."""
        state = self._worker.catalog.state(name)
        return _view(name, state, self._loader.failures().get(name))

    def index(self, *, only_ready: bool) -> list[IndexEntry]:
        """See `Administration`."""
        entries: list[IndexEntry] = []
        for name, state in sorted(self._worker.catalog.states.items()):
            entries.extend(IndexEntry(name, str(n), "READY", "") for n in sorted(state.versions))
            if not state.versions and not only_ready:
                entries.append(IndexEntry(name, "", "UNAVAILABLE", "no version is loaded"))
        return entries

    async def act(self, action: Action, model: str, request: ActionRequest) -> OperationView:
        """See `Administration`."""
        self.model(model)
        raise Unsupported(f"{action}: change the repository and start the server again")

    def operation(self, identity: str) -> OperationView:
        """See `Administration`."""
        raise NotFound(f"operation {identity!r} is not known")

    def operations(self) -> Sequence[OperationView]:
        """See `Administration`."""
        return ()

    async def set_labels(self, model: str, labels: Mapping[str, int | None]) -> ModelView:
        """See `Administration`."""
        self.model(model)
        raise Unsupported("labels: set them in serving.yaml and start the server again")

    def workers(self) -> Sequence[WorkerView]:
        """See `Administration`."""
        worker = self._worker
        return (
            WorkerView(
                index=worker.index,
                pid=os.getpid(),
                state=worker.lifecycle.phase.value,
                started=worker.started,
                restarts=0,
                snapshots=dict(worker.snapshots()),
            ),
        )

    def config(self) -> Mapping[str, object]:
        """See `Administration`."""
        return self._config

    def log(self, level: str | None, access: bool | None) -> LogView:
        """See `Administration`."""
        raise Unsupported("log: set log_level and access_log and start the server again")

    async def trace(self, seconds: float) -> bytes:
        """See `Administration`."""
        raise Unsupported("traces are not recorded yet")

    def check_ready(self) -> None:
        """See `Administration`."""
        self._worker.lifecycle.check_ready()


def _view(name: str, state: ServingState, failure: FailureView | None) -> ModelView:
    return ModelView(
        name=name,
        state="UNAVAILABLE" if state.default is None else "READY",
        pinned=None,
        policy=None,
        labels=dict(state.labels),
        versions=[
            VersionView(number, "READY", state.versions[number].snapshot.delta)
            for number in sorted(state.versions, reverse=True)
        ],
        last_error=failure,
    )
