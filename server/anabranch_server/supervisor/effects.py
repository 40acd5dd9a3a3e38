"""What an agreement decides on, and what is to be done about it: plain values."""

from dataclasses import dataclass
from typing import Literal

from anabranch_server.processes.messages import Abort, Joined, Prepare, Serving
from anabranch_server.processes.plans import StatePlan
from anabranch_wire.errors import AnabranchError

__all__ = [
    "Change",
    "Decide",
    "Effect",
    "Ended",
    "Kill",
    "KillReason",
    "Missed",
    "Publish",
    "Send",
    "WorkerId",
]

KillReason = Literal[
    "cannot_join", "closed_channel", "malformed", "prepare_timeout", "stale_lease", "unresponsive"
]


@dataclass(frozen=True, slots=True, order=True)
class WorkerId:
    """One life of a worker.

    Attributes:
        index: number of the worker.
        incarnation: rises with every start of that index.
    """

    index: int
    incarnation: int


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A state that a model is to serve.

    Attributes:
        model: model name.
        slot: index of the model's shared word.
        epoch: number of the state.
        state: what to serve; None when the model is gone.
    """

    model: str
    slot: int
    epoch: int
    state: StatePlan | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send `message` to a worker."""

    worker: WorkerId
    message: Prepare | Abort | Joined | Serving


@dataclass(frozen=True, slots=True)
class Kill:
    """End a worker that holds up the others, and say `why`."""

    worker: WorkerId
    reason: KillReason
    why: str


@dataclass(frozen=True, slots=True)
class Missed:
    """A worker cannot prepare what is current: load it again and switch, or else `give_up`."""

    change: Change


@dataclass(frozen=True, slots=True)
class Decide:
    """Everyone is prepared: make the change durable, then call `decided` or `undecided`."""

    change: Change


@dataclass(frozen=True, slots=True)
class Publish:
    """Apply the change and store the model's word."""

    change: Change


@dataclass(frozen=True, slots=True)
class Ended:
    """The switch is over; without an error it was published."""

    change: Change
    error: AnabranchError | None = None


Effect = Send | Kill | Missed | Decide | Publish | Ended
