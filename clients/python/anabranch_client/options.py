"""How a client behaves, beside where it is to go."""

import random
import time
from dataclasses import dataclass, field

from anabranch_client.policy import CallPolicy, EjectionRules, HedgeRules, RetryRules

__all__ = ["ClientOptions"]


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Rules of one client.

    Attributes:
        timeout_s: limit of every call that is given none of its own.
        connect_s: limit of opening a connection over HTTP, within that.
        retries: when calls are sent again.
        hedges: when calls are sent twice; None for never.
        ejection: when endpoints are left out.
    """

    timeout_s: float = 60.0
    connect_s: float = 1.0
    retries: RetryRules = field(default_factory=RetryRules)
    hedges: HedgeRules | None = None
    ejection: EjectionRules = field(default_factory=EjectionRules)

    def __post_init__(self) -> None:
        if not 0 < self.timeout_s < float("inf") or not 0 < self.connect_s < float("inf"):
            raise ValueError(f"expected timeout_s and connect_s above 0, got {self}")

    def policy(self, endpoints: int) -> CallPolicy:
        """Return the policy of a client that begins now."""
        return CallPolicy(
            endpoints,
            retries=self.retries,
            hedges=self.hedges,
            ejection=self.ejection,
            chance=random.random,
            now=time.monotonic(),
        )
