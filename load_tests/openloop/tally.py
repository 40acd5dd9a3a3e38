"""What a run counts, in memory that does not grow with the number of requests."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from openloop.answers import Answer
from openloop.histogram import Histogram, Summary

__all__ = ["Counts", "Tally"]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run; latencies are from the due time to the end of the answer.

    Attributes:
        requests: that were due and counted.
        outcomes: how many came to each outcome.
        statuses: how many were answered with each status.
        ok: latencies of `ok`.
        latencies: those of each status but 2xx.
        refused: those of all of them together.
        slip: how late the loop itself was with each request: no server has a part in it.
        wait: from its due time until a connection was free, of the requests that were sent.
    """

    requests: int
    outcomes: Mapping[str, int]
    statuses: Mapping[int, int]
    ok: Summary
    latencies: Mapping[int, Summary]
    refused: Summary
    slip: Summary
    wait: Summary

    @property
    def failed(self) -> int:
        """Requests that were not answered with 2xx."""
        return self.requests - self.outcomes.get("ok", 0)


class Tally:
    """Counts answers. Belongs to one thread."""

    def __init__(self) -> None:
        self._outcomes: Counter[str] = Counter()
        self._statuses: dict[int, Histogram] = {}
        self._slip = Histogram()
        self._wait = Histogram()

    def slipped(self, slip_ns: int) -> None:
        """The loop came to a request `slip_ns` after it was due."""
        self._slip.record(slip_ns)

    def add(self, answer: Answer) -> None:
        """Count an answer."""
        self._outcomes[answer.outcome] += 1
        if answer.sent_ns is not None:
            self._wait.record(answer.sent_ns - answer.due_ns)
        if answer.status is not None:
            histogram = self._statuses.get(answer.status)
            if histogram is None:
                histogram = self._statuses[answer.status] = Histogram()
            histogram.record(answer.ended_ns - answer.due_ns)

    def counts(self) -> Counts:
        """Return the figures so far."""
        good = [part for status, part in self._statuses.items() if 200 <= status < 300]
        other = [part for status, part in self._statuses.items() if not 200 <= status < 300]
        return Counts(
            requests=self._outcomes.total(),
            outcomes=dict(self._outcomes),
            statuses={status: part.count for status, part in sorted(self._statuses.items())},
            ok=Histogram.total(good).summary(),
            latencies={
                status: part.summary()
                for status, part in sorted(self._statuses.items())
                if not 200 <= status < 300
            },
            refused=Histogram.total(other).summary(),
            slip=self._slip.summary(),
            wait=self._wait.summary(),
        )
