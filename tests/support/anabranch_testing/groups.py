"""Sinks, observers and versions for tests of session groups."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.backends.protocol import DenseBackend
from anabranch_runtime.models import DenseModel
from anabranch_runtime.observing import DropReason, RestartReason, ShedReason
from anabranch_runtime.pacing import Pace
from anabranch_runtime.requests import ReplySink, ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings, GroupSettings, QueueSettings, Select
from anabranch_runtime.spans import Spans
from anabranch_wire.snapshots import Snapshot

__all__ = [
    "Collector",
    "Counts",
    "MakeGroup",
    "load_version",
    "open_groups",
    "served_version",
    "ticket_of",
    "until_asleep",
]

MakeGroup = Callable[..., SessionGroup]


class Collector:
    """Sink that keeps what it is given."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []
        self.calls = 0
        self._arrived = threading.Condition()

    def deliver(self, tickets: list[Ticket]) -> None:
        """Keep `tickets`."""
        with self._arrived:
            self.tickets.extend(tickets)
            self.calls += 1
            self._arrived.notify_all()

    def wait(self, count: int, timeout_s: float = 20.0) -> list[Ticket]:
        """Wait for `count` tickets in all and return everything that came."""
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.tickets) >= count, timeout_s)
            assert arrived, f"only {len(self.tickets)} of {count} tickets came back"
            return list(self.tickets)


class Counts:
    """Group observer that keeps what it is told."""

    def __init__(self) -> None:
        self.spans = Spans()
        self.batches: list[tuple[int, int, int]] = []
        self.shed_reasons: list[ShedReason] = []
        self.drop_reasons: list[DropReason] = []
        self.restart_reasons: list[RestartReason] = []

    def batch(self, executor: int, version: int, rows: int, requests: int, busy_s: float) -> None:
        """Keep executor, rows and requests."""
        self.batches.append((executor, rows, requests))

    def shed(self, reason: ShedReason) -> None:
        """Keep the reason."""
        self.shed_reasons.append(reason)

    def dropped(self, reason: DropReason) -> None:
        """Keep the reason."""
        self.drop_reasons.append(reason)

    def executor_restarted(self, reason: RestartReason) -> None:
        """Keep the reason."""
        self.restart_reasons.append(reason)


def served_version(
    model: DenseModel,
    version: int = 1,
    *,
    mergeable: bool = True,
    max_rows: int = 8,
    pace: Pace | None = None,
) -> ServedVersion:
    """A version without a group behind it, for tests of plain bookkeeping."""
    return ServedVersion(
        snapshot=Snapshot("m", version),
        model=model,
        rules=InputRules(model.inputs, model.rows.input_axes),
        output_index={spec.name: i for i, spec in enumerate(model.outputs)},
        group=cast(SessionGroup, None),
        mergeable=mergeable,
        max_rows=max_rows,
        pace=pace or Pace(),
    )


@contextmanager
def open_groups(backend: DenseBackend, counts: Counts) -> Iterator[MakeGroup]:
    """Yield a maker of session groups; all of them must close in the end."""
    groups: list[SessionGroup] = []

    def make(
        executors: int = 1,
        batching: BatchSettings | None = None,
        queue: QueueSettings | None = None,
        select: Select = "least_loaded",
        cpusets: tuple[frozenset[int], ...] = (),
    ) -> SessionGroup:
        settings = GroupSettings(
            executors=executors,
            batching=batching or BatchSettings(max_rows=16, split_rows=0),
            queue=queue or QueueSettings(),
            select=select,
            cpusets=cpusets,
        )
        group = SessionGroup("m", settings, backend, counts)
        groups.append(group)
        return group

    yield make
    for group in groups:
        assert group.close(10.0)


def load_version(
    group: SessionGroup, model: DenseModel, version: int = 1, *, users: tuple[str, ...] = ()
) -> ServedVersion:
    """Load `model` with an example of two rows, zeros everywhere."""
    example = {
        spec.name: np.full(
            [2 if size < 0 else size for size in spec.shape],
            b"" if spec.datatype == "BYTES" else 0,
            spec.dtype,
        )
        for spec in model.inputs
    }
    return group.load(Snapshot("m", version), model, [example], warm_rounds=1, user_inputs=users)


def ticket_of(
    served: ServedVersion,
    sink: ReplySink,
    *arrays: NDArray[np.generic],
    deadline_s: float = 30.0,
    priority: int = 0,
    routing_key: str | int | None = None,
) -> Ticket:
    """A ticket for `arrays`, one for each input in order, admitted as a door does it."""
    named = {spec.name: array for spec, array in zip(served.inputs, arrays, strict=True)}
    inputs, rows = served.rules.order(named)
    deadline = time.monotonic() + deadline_s
    request = ScoreRequest(inputs, rows, (), deadline, priority, routing_key)
    return Ticket(request, served, sink)


def until_asleep(group: SessionGroup, timeout_s: float = 10.0) -> None:
    """Wait until every executor of `group` sleeps."""
    end_s = time.monotonic() + timeout_s
    while sum(len(lane.idle) for lane in group._lanes.every) < group.settings.executors:
        assert time.monotonic() < end_s, "executors are still at work"
        time.sleep(0.001)
