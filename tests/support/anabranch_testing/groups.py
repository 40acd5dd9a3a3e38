"""Sinks, observers and versions for tests of session groups."""

import threading
from typing import cast

from anabranch_runtime.admission import InputRules
from anabranch_runtime.models import DenseModel
from anabranch_runtime.observing import DropReason, ShedReason
from anabranch_runtime.requests import Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_wire.snapshots import Snapshot

__all__ = ["Collector", "Counts", "served_version"]


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
        self.batches: list[tuple[int, int, int]] = []
        self.shed_reasons: list[ShedReason] = []
        self.drop_reasons: list[DropReason] = []

    def batch(self, executor: int, version: int, rows: int, requests: int, busy_s: float) -> None:
        """Keep executor, rows and requests."""
        self.batches.append((executor, rows, requests))

    def shed(self, reason: ShedReason) -> None:
        """Keep the reason."""
        self.shed_reasons.append(reason)

    def dropped(self, reason: DropReason) -> None:
        """Keep the reason."""
        self.drop_reasons.append(reason)


def served_version(
    model: DenseModel, version: int = 1, *, mergeable: bool = True, max_rows: int = 8
) -> ServedVersion:
    """A version without a group behind it, for tests of plain bookkeeping."""
    return ServedVersion(
        snapshot=Snapshot("m", version),
        model=model,
        rules=InputRules(model),
        output_index={spec.name: i for i, spec in enumerate(model.outputs)},
        group=cast(SessionGroup, None),
        mergeable=mergeable,
        max_rows=max_rows,
    )
