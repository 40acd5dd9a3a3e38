"""A score request on its way through a session group, and the ticket that carries it.

`ScoreRequest` is what a front door decoded and admitted; it never changes. `Ticket` is the one
mutable thing of a request: it is owned by the door until `SessionGroup.submit`, by the group until
it is handed to the sink, and by the door again after that. Only `cancelled` may be set by the door
in between.
"""

from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.served import ServedVersion
from anabranch_wire.errors import AnabranchError

__all__ = ["ReplySink", "ScoreRequest", "Ticket"]


class ScoreRequest(msgspec.Struct, frozen=True, gc=False):
    """One admitted request.

    Attributes:
        inputs: one array per dense input, in the model's order, with the declared dtypes, and
            behind them those of each feature in normal form; what `InputRules.order` returns. They
            may be read-only views of the received bytes; the group copies them before it computes.
        rows: number of rows the answer has, at least 0.
        outputs: indexes of the wanted outputs in the order to answer; empty means all.
        deadline: `time.monotonic()` value in seconds after which the answer is worthless.
        priority: 0 is the default level, 1 the highest, larger numbers are lower.
        routing_key: the caller's; picks the executor where executors are selected by key.
    """

    inputs: tuple[NDArray[np.generic], ...]
    rows: int
    outputs: tuple[int, ...]
    deadline: float
    priority: int = 0
    routing_key: str | int | None = None


class ReplySink(Protocol):
    """Takes finished tickets back to the front door they came from."""

    def deliver(self, tickets: list["Ticket"]) -> None:
        """Hand over `tickets`, each with `outputs` or `error` set.

        Called from executor threads, once per batch and sink, in the order of completion. Must not
        block and must not raise.
        """


class Ticket:
    """One request in flight. Front doors subclass it to carry what they need for the answer.

    Attributes:
        request: what to compute.
        version: the served version that was chosen for it; a request never changes versions.
        sink: where the finished ticket goes.
        submitted: `time.monotonic()` when the group took it.
        started: `time.monotonic()` when its (last) batch began; 0.0 if it never ran.
        finished: `time.monotonic()` when its result was complete.
        outputs: the answer, one array per wanted output, never a view of staging: those of one
            batch share a copy that nobody changes. None until finished or when it failed.
        error: why there is no answer.
        cancelled: set by the door when the caller left; work not yet begun is then dropped.
        batch_rows: rows of the batch it was computed in.
        lookup_s: seconds that the lookups of its (last) batch took, between `started` and
            `finished`; 0.0 where there are none.
        cost_s: seconds of an executor that it is expected to take; the group's own.
    """

    __slots__ = (
        "batch_rows",
        "cancelled",
        "cost_s",
        "error",
        "finished",
        "lookup_s",
        "outputs",
        "request",
        "sink",
        "started",
        "submitted",
        "version",
    )

    def __init__(self, request: ScoreRequest, version: ServedVersion, sink: ReplySink) -> None:
        self.request = request
        self.version = version
        self.sink = sink
        self.submitted = 0.0
        self.started = 0.0
        self.finished = 0.0
        self.outputs: tuple[NDArray[np.generic], ...] | None = None
        self.error: AnabranchError | None = None
        self.cancelled = False
        self.batch_rows = 0
        self.cost_s = 0.0
        self.lookup_s = 0.0
