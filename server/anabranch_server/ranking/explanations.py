"""Where the numbers of a ranking come from: how fresh, what was missed or defaulted, how long."""

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch_runtime.ranking.requests import Missed
from anabranch_runtime.requests import Ticket
from anabranch_runtime.served import Freshness

__all__ = ["Explanation", "stages_ms"]


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """What `explain` asks for.

    Attributes:
        freshness: of the snapshot.
        age_s: since its newest event; None where the version does not say.
        missed: feature -> keys that no item table or embedding table has.
        defaulted: features whose default stood in for at least one row, in model.yaml's order.
        stages_ms: decode, queue, lookup and run; milliseconds.
    """

    freshness: Freshness
    age_s: float | None
    missed: Mapping[str, Missed]
    defaulted: tuple[str, ...]
    stages_ms: Mapping[str, float]


def stages_ms(ticket: Ticket, received: float, explaining_s: float) -> dict[str, float]:
    """Return where the time of a finished ticket went.

    Args:
        ticket: finished.
        received: `time.monotonic()` when the last byte of the request came.
        explaining_s: of decoding, what was spent on the explanation.
    """
    started = ticket.started or ticket.finished
    stages_s = {
        "decode": ticket.submitted - received - explaining_s,
        "queue": started - ticket.submitted,
        "lookup": ticket.lookup_s,
        "run": ticket.finished - started - ticket.lookup_s,
    }
    return {name: round(max(seconds, 0.0) * 1000, 3) for name, seconds in stages_s.items()}
