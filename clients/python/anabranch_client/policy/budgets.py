"""A token bucket that keeps what is sent beside first attempts to a share of them.

Invariant: from any moment on, at most `capacity + share * requests + floor_per_s * seconds` tokens
are spent; in all, `initial` stands for `capacity`.
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["Budget", "BudgetRules"]


@dataclass(frozen=True, slots=True)
class BudgetRules:
    """How much may be sent beside first attempts.

    Attributes:
        share: tokens that each request earns; 0 to 1.
        floor_per_s: tokens that each second earns, whatever the traffic.
        initial: tokens at the beginning.
        capacity: most tokens that are kept.
    """

    share: float
    floor_per_s: float = 0.0
    initial: float = 0.0
    capacity: float = 100.0

    def __post_init__(self) -> None:
        if not (0 <= self.share <= 1 and 0 <= self.floor_per_s < float("inf")):
            raise ValueError(f"expected a share from 0 to 1 and a floor from 0 on, got {self}")
        if not 0 <= self.initial <= self.capacity < float("inf"):
            raise ValueError(f"expected 0 <= initial <= capacity, got {self}")


class Budget:
    """Tokens. Its owner guards it against threads.

    Args:
        rules: fixed.
        now: the moment it begins.
    """

    def __init__(self, rules: BudgetRules, now: float) -> None:
        self._rules: Final = rules
        self._tokens = rules.initial
        self._filled_at = now

    def earn(self) -> None:
        """Count one request."""
        self._add(self._rules.share)

    def spend(self, now: float) -> bool:
        """Take a token if there is one."""
        self._add(max(0.0, now - self._filled_at) * self._rules.floor_per_s)
        self._filled_at = max(now, self._filled_at)
        if self._tokens < 1.0 - 1e-9:  # a tenth, ten times, is a little less than one
            return False
        self._tokens = max(0.0, self._tokens - 1.0)
        return True

    def _add(self, tokens: float) -> None:
        self._tokens = min(self._rules.capacity, self._tokens + tokens)
