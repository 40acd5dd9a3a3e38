"""Which delta a version should be at: policy on plain values, without clock, file or process.

A version moves forward only, except to where a rollback holds it. What could not be applied is not
asked for again until something says that it may go otherwise now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch_server.supervisor.seen_deltas import NO_DELTAS, NO_STOPS, SeenDeltas

__all__ = ["NO_DELTA_FACTS", "DeltaFacts", "delta_to_ask", "wanted_delta"]


@dataclass(frozen=True, slots=True)
class DeltaFacts:
    """What the choice of a version's delta depends on.

    Attributes:
        seen: what has been published.
        stops: deltas that cannot be applied for now, or are missing -> the newest one that was
            asked for when that was found.
        accepted: where deltas are applied only when asked: the newest one that they were asked for.
    """

    seen: SeenDeltas = NO_DELTAS
    stops: Mapping[int, int] = field(default_factory=lambda: NO_STOPS)
    accepted: int = 0


NO_DELTA_FACTS = DeltaFacts()


def wanted_delta(applied: int, facts: DeltaFacts, *, held: int | None, is_manual: bool) -> int:
    """Return the delta that a version is to be at, as far as that can be had for now.

    Args:
        applied: the delta that it is at.
        facts: of the version.
        held: the delta that a rollback holds it at.
        is_manual: whether deltas wait until somebody asks.
    """
    if held is not None and held < applied:
        return applied if any(stop <= held for stop in facts.stops) else held
    if held is not None:
        return delta_to_ask(applied, facts, held)
    if is_manual:
        return delta_to_ask(applied, facts, facts.accepted)
    return delta_to_ask(applied, facts, facts.seen.newest)


def delta_to_ask(applied: int, facts: DeltaFacts, upto: int) -> int:
    """Return the newest delta to ask for, up to `upto`; `applied` where that is none.

    Where nothing is known to be in the way it is `upto` itself, be there a gap: who applies deltas
    finds cumulative ones that nobody has looked at here, or says what is missing.
    """
    limit = min(upto, facts.seen.newest)
    if limit <= applied:
        return applied
    if any(applied < stop <= limit for stop in facts.stops):
        return facts.seen.reach(applied, facts.stops, limit)
    return limit
