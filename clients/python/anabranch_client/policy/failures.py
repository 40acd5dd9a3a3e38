"""Why one attempt of a call failed, as far as that decides what comes next."""

from dataclasses import dataclass
from enum import Enum

from anabranch_wire.errors import AnabranchError, Overloaded, Unavailable

__all__ = ["AttemptFailed", "Blame", "Failure", "failure_of"]


class Blame(Enum):
    """What a failure says of the endpoint.

    Attributes:
        NONE: it answered; another would have answered the same.
        BUSY: it answered that it has too much to do.
        SILENT: nothing came from it in time, which may be its fault.
        DOWN: it cannot be reached, or said that it cannot answer.
    """

    NONE = "none"
    BUSY = "busy"
    SILENT = "silent"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt failed.

    Attributes:
        error: what the caller gets, should this be the end.
        safe: whether the call may be sent again.
        blame: what it says of the endpoint.
        final: whether every other attempt would end like this one, so that none is waited for.
        wait_s: when the endpoint asked to be asked again, if it did.
    """

    error: AnabranchError
    safe: bool = False
    blame: Blame = Blame.NONE
    final: bool = False
    wait_s: float | None = None


class AttemptFailed(Exception):
    """Raised by transports, and by nothing that callers see.

    Attributes:
        failure: why.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error.message)
        self.failure = failure


def failure_of(error: AnabranchError) -> Failure:
    """Return what an error stands for that an endpoint answered with.

    Scoring changes nothing, so every answer that says "not now" or "not here" may be asked for
    again; all others would be the same.
    """
    if isinstance(error, Overloaded):
        return Failure(error, safe=True, blame=Blame.BUSY, wait_s=error.retry_after_s)
    if isinstance(error, Unavailable):
        return Failure(error, safe=True, blame=Blame.DOWN)
    return Failure(error, final=True)
