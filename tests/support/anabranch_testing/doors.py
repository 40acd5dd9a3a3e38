"""What tests of front doors share: served models behind a context, and who was told what."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.backends.protocol import DenseBackend
from anabranch_runtime.catalog import ServingState
from anabranch_runtime.models import DenseModel
from anabranch_runtime.observing import ShedReason
from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_runtime.requests import Ticket
from anabranch_runtime.row_source import StoreView
from anabranch_runtime.sent_features import LENGTHS
from anabranch_runtime.served import Freshness, ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings, GroupSettings, QueueSettings
from anabranch_server.doors import CutReason, DoorContext, Protocol, RequestObserver
from anabranch_server.lifecycle import Lifecycle, Phase
from anabranch_server.limits import Limits
from anabranch_server.trace_context import TraceContext
from anabranch_testing.catalogs import OwnCatalog
from anabranch_testing.groups import Counts
from anabranch_wire.snapshots import Snapshot

__all__ = ["FRESHNESS", "Observed", "door_context", "example_of", "users_of"]

FRESHNESS: Final = Freshness(step=1_200_400, event_time=1_764_417_655.0)
"""Of every version here."""


@dataclass
class Observed:
    """Request observer that keeps what it is told; events may come from any thread."""

    scores: list[tuple[str, Protocol, int, int]] = field(default_factory=list)
    failures: list[tuple[str, Protocol, str]] = field(default_factory=list)
    changes: list[tuple[Protocol, int]] = field(default_factory=list)
    cuts: list[tuple[Protocol, str]] = field(default_factory=list)
    sheds: list[tuple[str, ShedReason]] = field(default_factory=list)
    traces: list[TraceContext | None] = field(default_factory=list)
    rankings: list[tuple[str, dict[str, list[int]], int]] = field(default_factory=list)
    changed: threading.Event = field(default_factory=threading.Event)

    def scored(
        self,
        ticket: Ticket,
        protocol: Protocol,
        received: float,
        written: float,
        bytes_in: int,
        bytes_out: int,
        request_id: str,
        trace: TraceContext | None = None,
    ) -> None:
        """Keep the model and the sizes."""
        assert received <= ticket.submitted <= ticket.started <= ticket.finished <= written
        self.traces.append(trace)
        self.scores.append((ticket.version.snapshot.model, protocol, bytes_in, bytes_out))
        self.changed.set()

    def failed(
        self,
        model: str,
        protocol: Protocol,
        code: str,
        duration_s: float,
        bytes_in: int,
        request_id: str,
        trace: TraceContext | None = None,
    ) -> None:
        """Keep the model and the code."""
        assert duration_s >= 0
        self.traces.append(trace)
        self.failures.append((model, protocol, code))
        self.changed.set()

    def ranked(
        self, model: str, features: tuple[str, ...], counts: NDArray[np.int64], nan_scores: int
    ) -> None:
        """Keep the counts by feature."""
        named = dict(zip(features, counts.tolist(), strict=True))
        self.rankings.append((model, named, nan_scores))

    def shed(self, model: str, reason: ShedReason) -> None:
        """Keep model and reason."""
        self.sheds.append((model, reason))

    def connections(self, protocol: Protocol, change: int) -> None:
        """Keep the change."""
        self.changes.append((protocol, change))

    def connection_cut(self, protocol: Protocol, reason: CutReason) -> None:
        """Keep the reason."""
        self.cuts.append((protocol, reason))


@contextmanager
def door_context(
    models: Mapping[str, DenseModel],
    *,
    limits: Limits | None = None,
    backend: DenseBackend | None = None,
    queue: QueueSettings | None = None,
    observed: RequestObserver | None = None,
    delta: int = 17,
    stores: Mapping[str, StoreView] = MappingProxyType({}),
    rankings: Mapping[str, RankingPlan] = MappingProxyType({}),
    explain_sample: float = 0.0,
) -> Iterator[DoorContext]:
    """Serve `models` as version 42 with one executor each, until the block ends.

    Args:
        models: model name -> model.
        limits: of the door.
        backend: runs the models; ONNX Runtime when None.
        queue: of every group.
        observed: is told of requests.
        delta: of every snapshot.
        stores: model name -> where its lookups read.
        rankings: model name -> how it ranks; its tensors say which inputs may hold one user.
        explain_sample: share of rankings whose explanation is logged.
    """
    catalog = OwnCatalog()
    groups: list[SessionGroup] = []
    try:
        for name, model in models.items():
            settings = GroupSettings(
                batching=BatchSettings(max_rows=64, split_rows=0), queue=queue or QueueSettings()
            )
            group = SessionGroup(name, settings, backend or OrtCpuBackend(), Counts())
            groups.append(group)
            snapshot = Snapshot(name, 42, delta)
            store = stores.get(name)
            example = example_of(model)
            plan = rankings.get(name)
            state = _only(
                group.load(
                    snapshot,
                    model,
                    [example],
                    warm_rounds=1,
                    store=store,
                    ranking=None if plan is None else RankingRules(plan, model.outputs),
                    user_inputs=() if plan is None else users_of(plan),
                    freshness=FRESHNESS,
                )
            )
            catalog.publish(name, state)
            del state  # whoever waits for the end of the block keeps no version
        lifecycle = Lifecycle(catalog)
        lifecycle.advance(Phase.SERVING)
        yield DoorContext(
            catalog,
            limits or Limits(),
            lifecycle,
            observed or Observed(),
            "0.1.0",
            explain_sample=explain_sample,
        )
    finally:
        for group in groups:
            group.close()


def example_of(model: DenseModel, rows: int = 1) -> dict[str, np.ndarray]:
    """Zeros or empty strings for every input, with `rows` rows; one id each where they differ."""
    lookups = model.lookups
    lengths = {
        feature.name + LENGTHS: np.ones(rows, np.int64)
        for feature in (() if lookups is None else lookups.features)
        if feature.ragged
    }
    return lengths | {
        spec.name: np.full(
            tuple(rows if size < 0 else size for size in spec.shape),
            b"" if spec.datatype == "BYTES" else 0,
            spec.dtype,
        )
        for spec in model.request_inputs
    }


def users_of(plan: RankingPlan) -> tuple[str, ...]:
    """Return the inputs of the graph that may hold one user for all candidates."""
    return tuple(tensor.name for tensor in plan.tensors if tensor.once)


def _only(served: ServedVersion) -> ServingState:
    number = served.snapshot.version
    return ServingState({number: served}, labels={"stable": number}, default=number)
