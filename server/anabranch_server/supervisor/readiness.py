"""Whether the server should get traffic, and why not: policy on plain values.

Ready comes with the first look at the repository and goes with the last worker, or with the stop.
Nothing that happens to models afterwards turns it off: not a reload, not a version that is refused,
not a model that appears later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch_runtime.catalog import absence
from anabranch_server.processes.plans import StatePlan

__all__ = ["Standing", "obstacle"]

_SHOWN: Final = 20
"""How many models the reason lists."""


@dataclass(frozen=True, slots=True)
class Standing:
    """All that readiness depends on.

    Attributes:
        is_draining: whether a stop was asked for.
        has_been_ready: whether there was no obstacle once.
        has_looked: whether all that the first look found was served or refused.
        serving_workers: workers that answer requests.
        states: model -> what it serves.
        allow_empty: whether no model at all is enough.
    """

    is_draining: bool
    has_been_ready: bool
    has_looked: bool
    serving_workers: int
    states: Mapping[str, StatePlan]
    allow_empty: bool


def obstacle(standing: Standing) -> str | None:
    """Return why the server is not ready; None when it is."""
    if standing.is_draining:
        return "the server is draining"
    if not standing.has_been_ready:
        if not standing.has_looked:
            return "the server is starting"
        missing = [
            f"{model} ({_absence(state)})"
            for model, state in sorted(standing.states.items())
            if state.required and state.default is None
        ]
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            named = ", ".join(missing[:_SHOWN])
            return f"required models that cannot answer: {named}{more}"
        if not standing.states and not standing.allow_empty:
            return "the repository has no model"
    if not standing.serving_workers:
        return "no worker answers requests"
    return None


def _absence(state: StatePlan) -> str:
    return absence(state.served, state.labels, state.default_label)
