"""What a run is told, and what it tells."""

from dataclasses import dataclass
from typing import Final

import msgspec

from openloop.arrivals import Arrivals
from openloop.tally import Counts

__all__ = ["Plan", "Result", "warnings"]

_BUSY: Final = 0.9


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send, and for how long.

    Attributes:
        rate: requests a second.
        seconds: how long requests are due, the warm-up included.
        connections: kept connections; a request that finds none free waits, and the wait counts.
        arrivals: evenly spaced or a Poisson process.
        timeout_s: from a request's due time to its end.
        warm_up_s: requests due before this are sent and not counted.
        max_requests: an end by number; None ends by time alone.
        max_waiting: requests that may wait for a connection; those beyond are `unsent`.
        seed: of Poisson arrivals.
    """

    rate: float
    seconds: float
    connections: int
    arrivals: Arrivals = "constant"
    timeout_s: float = 5.0
    warm_up_s: float = 0.0
    max_requests: int | None = None
    max_waiting: int = 100_000
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("rate", "seconds", "connections", "timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} {getattr(self, name)}: expected more than 0")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a run saw.

    Attributes:
        rate: requests a second that were to be sent.
        seconds: counted part of the time in which requests were begun.
        counts: what became of them.
        elapsed_s: from the first request to the end of the last one, the warm-up included.
        ok_per_s: those that were answered with 2xx, by `seconds`.
        opened: connections that were opened.
        cpu_share: part of one core that the loop used.
        warnings: why the figures may say more about the loop than about the server.
    """

    rate: float
    seconds: float
    elapsed_s: float
    counts: Counts
    ok_per_s: float
    opened: int
    cpu_share: float
    warnings: tuple[str, ...]


def warnings(counts: Counts, share: float) -> tuple[str, ...]:
    """Return why the loop itself may have been the bottleneck, in words.

    Args:
        counts: what it saw.
        share: part of one core that it used.
    """
    found = []
    if share > _BUSY:
        found.append(
            f"the loop used {share:.0%} of its core: it may have been the bottleneck; lower the "
            "rate or run several loops"
        )
    if counts.ok.count and counts.slip.p99_ms > max(0.25 * counts.ok.p99_ms, 1.0):
        found.append(
            f"the loop came late to its own requests (p99 {counts.slip.p99_ms:.2f} ms of "
            f"{counts.ok.p99_ms:.2f} ms): give it a core of its own"
        )
    return tuple(found)
