"""Whether a failed attempt is followed by another, and after how long."""

from dataclasses import dataclass, field
from typing import Final

from anabranch_client.policy.budgets import BudgetRules

__all__ = ["RetryRules", "backoff_s"]

_DOUBLINGS: Final = 30


@dataclass(frozen=True, slots=True)
class RetryRules:
    """When calls are sent again.

    Only what is safe is sent again: a connection that was refused, or lost before an answer, and
    answers of the kinds `Unavailable` and `Overloaded`.

    Attributes:
        attempts: most of one call, the first included; 1 turns retries off.
        base_s: the first wait is anything up to this; each further one anything up to twice as
            much (full jitter).
        most_s: limit of that.
        budget: of retries, over all calls of a client.
    """

    attempts: int = 3
    base_s: float = 0.02
    most_s: float = 1.0
    budget: BudgetRules = field(
        default_factory=lambda: BudgetRules(share=0.1, floor_per_s=1.0, initial=10.0)
    )

    def __post_init__(self) -> None:
        if self.attempts < 1 or not 0 <= self.base_s <= self.most_s < float("inf"):
            raise ValueError(f"expected attempts >= 1 and 0 <= base_s <= most_s, got {self}")


def backoff_s(rules: RetryRules, retry: int, chance: float) -> float:
    """Return the wait before a retry.

    Args:
        rules: `base_s` and `most_s` apply.
        retry: 1 for the first of a call.
        chance: from 0 to 1.
    """
    return chance * min(rules.most_s, rules.base_s * 2.0 ** min(retry - 1, _DOUBLINGS))
