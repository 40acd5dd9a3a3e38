"""What became of one request: a closed set of outcomes, and all that a check may want to know."""

from typing import Literal

import msgspec

__all__ = ["Answer", "Outcome", "Reply"]

Outcome = Literal["ok", "status", "reset", "timeout", "unsent", "malformed"]
"""What became of a request.

`ok`: answered with 2xx. `status`: answered otherwise. `reset`: the connection ended between the
request and the end of its answer. `timeout`: sent, not answered in time. `unsent`: no connection
was free, or none could be made, in the time that the request had. `malformed`: the answer is none.
"""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """What a link received in answer to one request.

    Attributes:
        status: HTTP status; a link of another protocol translates to one.
        recorded: values of the headers to be recorded, in their order; None for a missing one.
        closes: whether the link ends behind this answer.
        body: its body, where the link was told to keep it.
    """

    status: int
    recorded: tuple[str | None, ...]
    closes: bool = False
    body: bytes = b""


class Answer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One request from its due time to its end. Times are `time.monotonic_ns`.

    Attributes:
        number: of the request, from 0, in the order of due times.
        due_ns: when it was to be sent.
        sent_ns: when it was sent; None for `unsent`.
        ended_ns: when its fate was known.
        outcome: what became of it.
        status: of the answer; None when there was none.
        recorded: see `Reply`; empty when there was no answer.
        connection: number of the connection that carried it, from 0, each new one counting; None
            for `unsent`.
        local_port: of that connection, 0 where a link has none.
        body: of the answer, where bodies are kept.
    """

    number: int
    due_ns: int
    sent_ns: int | None
    ended_ns: int
    outcome: Outcome
    status: int | None
    recorded: tuple[str | None, ...]
    connection: int | None
    local_port: int
    body: bytes = b""
