"""Which endpoint an attempt goes to: the one with the fewest pending, of those that answer.

An endpoint that fails several times in a row is left out for a while that doubles each time, and
is then tried with one attempt. Where all are left out, the one whose turn comes first is taken: the
client never refuses a call by itself.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from anabranch_client.policy.failures import Blame

__all__ = ["Balancer", "EjectionRules"]


@dataclass(frozen=True, slots=True)
class EjectionRules:
    """When an endpoint is left out.

    Attributes:
        failures: how many of `Blame.DOWN` in a row.
        silent_s: for how long attempts may be late, without any answer in between. A server that is
            only slow answers somebody in the meantime.
        base_s: for how long the first time.
        most_s: limit of what is doubled.
    """

    failures: int = 3
    silent_s: float = 1.0
    base_s: float = 0.5
    most_s: float = 30.0

    def __post_init__(self) -> None:
        if self.failures < 1 or not 0 < self.base_s <= self.most_s < float("inf"):
            raise ValueError(f"expected failures >= 1 and 0 < base_s <= most_s, got {self}")
        if not self.silent_s >= 0:
            raise ValueError(f"expected silent_s >= 0, got {self}")


@dataclass(slots=True)
class _Endpoint:
    pending: int = 0
    failures: int = 0  # in a row
    silent_since: float | None = None  # None after an answer
    ejections: int = 0  # without an answer in between
    out_until: float | None = None  # None while it is in
    probing: bool = False
    rests_until: float = field(default=float("-inf"))


class Balancer:
    """What is known of each endpoint. Its owner guards it against threads.

    Args:
        endpoints: how many; they are numbered from 0.
        rules: fixed.
    """

    def __init__(self, endpoints: int, rules: EjectionRules) -> None:
        if endpoints < 1:
            raise ValueError("expected at least one endpoint")
        self._rules: Final = rules
        self._endpoints: Final = [_Endpoint() for _ in range(endpoints)]
        self._turn = 0

    def begin(self, now: float, tried: Collection[int] = ()) -> int:
        """Choose an endpoint for an attempt, which is pending until `end`.

        Args:
            now: an endpoint that was left out long enough gets one attempt.
            tried: endpoints that the call was sent to before; others are preferred.
        """
        count = len(self._endpoints)
        self._turn = (self._turn + 1) % count
        number = min(range(count), key=lambda index: self._order(index, now, tried))
        chosen = self._endpoints[number]
        chosen.pending += 1
        if chosen.out_until is not None and chosen.out_until <= now:
            chosen.probing = True
        return number

    def end(self, number: int, now: float, blame: Blame | None, wait_s: float | None) -> None:
        """Say how an attempt ended.

        Args:
            number: what `begin` returned.
            now: when.
            blame: what it says of the endpoint; None where it was cancelled and says nothing.
            wait_s: when the endpoint asked to be asked again, if it did.
        """
        endpoint = self._endpoints[number]
        endpoint.pending -= 1
        if blame is None:
            endpoint.probing = False
        elif blame is Blame.DOWN:
            self._failed(endpoint, now)
        elif blame is Blame.SILENT:
            if endpoint.silent_since is None:
                endpoint.silent_since = now
            if endpoint.probing or now - endpoint.silent_since >= self._rules.silent_s:
                self._eject(endpoint, now)
        else:
            endpoint.failures = endpoint.ejections = 0
            endpoint.silent_since = endpoint.out_until = None
            endpoint.probing = False
            if wait_s is not None:
                endpoint.rests_until = max(endpoint.rests_until, now + wait_s)

    def rest_s(self, now: float) -> float:
        """Return how long until an endpoint wants to be asked; 0 where one does now."""
        ins = [e for e in self._endpoints if e.out_until is None] or self._endpoints
        return max(0.0, min(e.rests_until for e in ins) - now)

    def pending(self, number: int) -> int:
        """Return how many attempts an endpoint has."""
        return self._endpoints[number].pending

    def is_out(self, number: int) -> bool:
        """Return whether an endpoint is left out, or being tried."""
        return self._endpoints[number].out_until is not None

    def _order(
        self, index: int, now: float, tried: Collection[int]
    ) -> tuple[bool, float, bool, bool, int, int]:
        endpoint = self._endpoints[index]
        out = endpoint.out_until
        left_out = out is not None and (endpoint.probing or out > now)
        return (
            left_out,
            (out or 0.0) if left_out else 0.0,
            index in tried,
            endpoint.rests_until > now,
            # An endpoint whose time has come is tried at once, else it would wait for a lull.
            -1 if out is not None and not left_out else endpoint.pending,
            (index - self._turn) % len(self._endpoints),
        )

    def _failed(self, endpoint: _Endpoint, now: float) -> None:
        endpoint.failures += 1
        if endpoint.out_until is not None or endpoint.failures >= self._rules.failures:
            self._eject(endpoint, now)

    def _eject(self, endpoint: _Endpoint, now: float) -> None:
        out = endpoint.out_until
        if out is not None and out > now and not endpoint.probing:
            return  # an attempt that was begun before
        endpoint.probing = False
        length_s = min(self._rules.most_s, self._rules.base_s * 2.0 ** min(endpoint.ejections, 30))
        endpoint.ejections += 1
        endpoint.out_until = now + length_s
