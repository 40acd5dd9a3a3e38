"""When a call that takes long is sent a second time, and how long calls take."""

from dataclasses import dataclass
from typing import Final

from anabranch_client.policy.budgets import BudgetRules

__all__ = ["HedgeRules", "Latencies"]


@dataclass(frozen=True, slots=True)
class HedgeRules:
    """Hedging: a call without an answer after a while is sent to another endpoint too.

    The first answer counts, the other attempt is cancelled at the server.

    Attributes:
        after_s: the while; None for the 95th percentile of what calls took lately.
        share: most hedges, of all requests; there is no floor.
    """

    after_s: float | None = None
    share: float = 0.05

    def __post_init__(self) -> None:
        if self.after_s is not None and not 0 <= self.after_s < float("inf"):
            raise ValueError(f"expected after_s >= 0, got {self.after_s}")
        if not 0 <= self.share <= 0.05:
            raise ValueError(f"expected a share of at most 0.05, got {self.share}")

    def budget(self) -> BudgetRules:
        """Return the budget of hedges; a pause in traffic saves up no more than ten of them."""
        return BudgetRules(share=self.share, capacity=10.0)


class Latencies:
    """The newest latencies, and a percentile of them. Its owner guards it against threads."""

    KEPT: Final = 512
    LEAST: Final = 64
    """Fewer than these say nothing."""
    _EVERY: Final = 32  # latencies after which the percentile is looked at again

    def __init__(self, percentile: float = 0.95) -> None:
        self._percentile: Final = percentile
        self._seen: list[float] = []
        self._count = 0
        self._value: float | None = None

    def add(self, seconds: float) -> None:
        """Count a call that took `seconds`, or was cancelled after them."""
        if len(self._seen) < self.KEPT:
            self._seen.append(seconds)
        else:
            self._seen[self._count % self.KEPT] = seconds
        self._count += 1
        if self._count >= self.LEAST and self._count % self._EVERY == 0:
            ordered = sorted(self._seen)
            self._value = ordered[min(len(ordered) - 1, int(self._percentile * len(ordered)))]

    def value(self) -> float | None:
        """Return the percentile; None while too few calls were seen."""
        return self._value
