"""The deltas of a version as they were seen in the repository: which there are, and the newest."""

from dataclasses import dataclass

__all__ = ["NO_DELTAS", "SeenDeltas"]


@dataclass(frozen=True, slots=True)
class SeenDeltas:
    """Published deltas; immutable, and equal as long as no other delta appears.

    Attributes:
        ranges: numbers of published deltas: (first, last) of each stretch without a gap, rising.
        replaces_from: of the newest one; 0 where there is none, or it cannot be read.
        step: of the newest one, where it says so.
        event_time: of the newest one, where it says so.
        created: of the newest one, seconds since 1970; None where it cannot be read.
        fingerprint: of the newest one's file.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    replaces_from: int = 0
    step: int | None = None
    event_time: float | None = None
    created: float | None = None
    fingerprint: str = ""

    @property
    def newest(self) -> int:
        """The newest delta; 0 where there is none."""
        return self.ranges[-1][1] if self.ranges else 0

    def reach(self, applied: int) -> int:
        """Return the newest delta that can be applied after `applied` without a gap."""
        if self.newest > applied and 0 < self.replaces_from <= applied + 1:
            return self.newest
        return next((last for first, last in self.ranges if first <= applied + 1 <= last), applied)


NO_DELTAS = SeenDeltas()
