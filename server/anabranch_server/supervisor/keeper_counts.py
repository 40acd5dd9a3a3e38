"""What happened to models, counted: plain values for whoever renders metrics."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal

from anabranch_server.metrics.names import RELOAD_S

__all__ = ["DURATION_BOUNDS", "Durations", "ReloadCounts", "ReloadKind", "ReloadResult"]

ReloadKind = Literal["version", "delta", "rollback", "config"]
ReloadResult = Literal["ok", "failed"]

DURATION_BOUNDS: Final = RELOAD_S
"""Upper bounds of the buckets, seconds; a last bucket has no bound."""


class Durations:
    """A histogram of seconds.

    Attributes:
        counts: in each bucket, not cumulated; one more than `DURATION_BOUNDS`.
        sum: of all of them.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(DURATION_BOUNDS) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(DURATION_BOUNDS, seconds)] += 1
        self.sum += seconds


class ReloadCounts:
    """All counters of reloads. Written and read on the event loop.

    Attributes:
        reloads: (model, kind, result) -> how often.
        failures: (model, reason) -> how often.
        phases: (model, kind, phase) -> how long.
        publish_to_served: (model, kind) -> time from being published to being served.
        delta_rows: (model, upsert or delete) -> rows of the deltas that were applied.
    """

    def __init__(self) -> None:
        self.reloads: Counter[tuple[str, ReloadKind, ReloadResult]] = Counter()
        self.failures: Counter[tuple[str, str]] = Counter()
        self.phases: dict[tuple[str, ReloadKind, str], Durations] = {}
        self.publish_to_served: dict[tuple[str, ReloadKind], Durations] = {}
        self.delta_rows: Counter[tuple[str, str]] = Counter()

    def succeeded(self, model: str, kind: ReloadKind, phase_ms: Mapping[str, float]) -> None:
        """Count what was switched to."""
        self.reloads[model, kind, "ok"] += 1
        for phase, duration_ms in phase_ms.items():
            self.phases.setdefault((model, kind, phase), Durations()).add(duration_ms / 1e3)

    def applied(self, model: str, upserts: int, deletes: int) -> None:
        """Count the rows of deltas that are served now."""
        for op, rows in (("upsert", upserts), ("delete", deletes)):
            if rows:
                self.delta_rows[model, op] += rows

    def failed(self, model: str, kind: ReloadKind, reason: str) -> None:
        """Count what could not be served."""
        self.reloads[model, kind, "failed"] += 1
        self.failures[model, reason] += 1

    def served(self, model: str, kind: ReloadKind, seconds: float) -> None:
        """Count how long after being published something was served."""
        self.publish_to_served.setdefault((model, kind), Durations()).add(max(0.0, seconds))
