"""What finding a version, or its deltas, took and brought: values on their way into reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch_server.processes.loader_messages import Applied

__all__ = ["NO_WORK", "Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """What was done for a version since it was switched to last.

    Attributes:
        phase_ms: how long each phase took.
        upserts: rows that deltas brought, each delta counted by itself.
        deletes: rows that they took out.
        bytes: of the files of deltas.
        is_news: whether deltas were applied, rather than gone back to or forward to once more.
    """

    phase_ms: Mapping[str, float] = field(default_factory=dict)
    upserts: int = 0
    deletes: int = 0
    bytes: int = 0
    is_news: bool = False

    def with_deltas(self, applied: Applied) -> "Work":
        """Return it with what deltas took and brought."""
        return replace(
            self.with_phases(applied.phase_ms),
            upserts=self.upserts + applied.upserts,
            deletes=self.deletes + applied.deletes,
            bytes=self.bytes + applied.bytes,
            is_news=True,
        )

    def with_phases(self, phase_ms: Mapping[str, float]) -> "Work":
        """Return it with further phases; of one that was there already the times add up."""
        more = {phase: self.phase_ms.get(phase, 0.0) + ms for phase, ms in phase_ms.items()}
        return replace(self, phase_ms={**self.phase_ms, **more})


NO_WORK = Work()
