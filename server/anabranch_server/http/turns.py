"""The requests of one connection that are not answered yet: HTTP/1.1 answers them in order.

A hot request is computed as soon as it was read, whatever stands before it; its answer waits here.
A cold one is handed to ASGI only when everything before it is answered, because ASGI writes to the
transport itself.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final
from typing import Protocol as Interface

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from anabranch_runtime.requests import ReplySink, ScoreRequest
from anabranch_runtime.served import ServedVersion
from anabranch_server.http.answers import KEEPS, Answer, error_answer, score_answer
from anabranch_server.http.bodies import Decoded
from anabranch_server.http.calls import Call, Line, public
from anabranch_server.http.decoders import Decoders
from anabranch_server.http.loop_sink import LoopTicket
from anabranch_server.http.routes import Encode
from anabranch_wire.errors import AnabranchError, Cancelled, DeadlineExceeded

__all__ = ["ColdTurn", "DecodingTurn", "FailedTurn", "HotTurn", "Turn"]

_PROMPT_END_S: Final = 0.1


class Turn(Interface):
    """One request in its place in the order. Loop thread.

    Attributes:
        answer: what to write; None until it is known, and always for a cold one.
    """

    answer: Answer | None

    @property
    def ending(self) -> bytes:
        """Last lines of the answer's head: what the caller wants of the connection."""
        ...

    def begin(self) -> None:
        """Everything before it is answered."""

    def expire(self, now: float) -> bool:
        """Answer it if it waits past its deadline; says whether that was so."""
        ...

    def is_awaited(self, now: float) -> bool:
        """Whether a peer that ends its sending at `now`, with this request, waits for the answer.

        Leaving looks the same on the wire. Ending right behind the request (`nc -N`, some proxies)
        is taken for the one, ending after having waited for the other.
        """
        ...

    def written(self, now: float) -> None:
        """Its answer is handed to the transport at `now`."""

    def abandon(self) -> None:
        """The connection is gone."""


class HotTurn(LoopTicket):
    """A hot request that the session group computes."""

    __slots__ = ("_body_bytes", "_call", "_encode", "_failure", "answer", "ending")

    def __init__(
        self,
        request: ScoreRequest,
        version: ServedVersion,
        sink: ReplySink,
        call: Call,
        encode: Encode,
    ) -> None:
        super().__init__(request, version, sink)
        self._call = call
        self._encode = encode
        self._failure: AnabranchError | None = None
        self._body_bytes = 0
        self.answer: Answer | None = None
        self.ending = call.ending

    def settle(self) -> Line | None:
        """Make the answer of what the group returned."""
        call = self._call
        line = call.line
        if line.is_gone or self.answer is not None:
            return None
        error: Exception | None = self.error
        if error is None and self.finished > self.request.deadline:
            error = DeadlineExceeded("the deadline passed before the answer was ready")
        if error is None:
            try:
                reply = self._encode(self)
                self.answer = score_answer(
                    reply, self.version.snapshot, call.request_id, call.accepts, call.trace
                )
            except Exception as fault:  # the edge of the loop: one answer fails, not its neighbours
                error = fault
            else:
                self._body_bytes = reply.size
                return line
        self._fail(public(error, call.request_id))
        return line

    def begin(self) -> None:
        """Nothing: it has begun already."""

    def expire(self, now: float) -> bool:
        """Answer with `DeadlineExceeded` if the group still has it past its deadline."""
        if self.answer is not None or now <= self.request.deadline:
            return False
        self.cancelled = True
        self._fail(DeadlineExceeded("the deadline passed before the answer was ready"))
        return True

    def is_awaited(self, now: float) -> bool:
        """Whether the end came right behind the request."""
        return now - self._call.received <= _PROMPT_END_S

    def written(self, now: float) -> None:
        """Tell the observer."""
        call = self._call
        failure = self._failure
        if failure is None:
            call.line.observer.scored(
                self,
                call.protocol,
                call.received,
                now,
                call.bytes_in,
                self._body_bytes,
                call.request_id,
                call.trace,
            )
        else:
            _tell_failed(call, failure.grpc, now - call.received)

    def abandon(self) -> None:
        """Let the group drop it if it can."""
        self.cancelled = True
        self._failure = Cancelled("the caller left")
        self.written(time.monotonic())

    def _fail(self, error: AnabranchError) -> None:
        call = self._call
        self._failure = error
        self.answer = error_answer(error, call.request_id, trace=call.trace)


class DecodingTurn:
    """A hot request whose long body waits for a decoder; another turn takes its place.

    Attributes:
        call: what is known of it.
    """

    answer: Answer | None = None

    def __init__(
        self,
        call: Call,
        decoders: Decoders,
        decode: Callable[[], Decoded],
        go_on: Callable[["DecodingTurn", Future[Decoded]], None],
    ) -> None:
        """Queue the body.

        Args:
            call: what is known of the request.
            decoders: do it.
            decode: does it; any thread may call it.
            go_on: takes this turn and what came of it; called on the loop.

        Raises:
            Overloaded: too many bodies wait.
        """
        self.call = call
        self.ending = call.ending
        self._decoders = decoders
        self._go_on = go_on
        self.decode = decode
        decoders.submit(self)

    def decoded(self, future: Future[Decoded]) -> None:
        """Go on with what came of the body."""
        self._go_on(self, future)

    def begin(self) -> None:
        """Nothing: it has begun already."""

    def expire(self, now: float) -> bool:
        """Its deadline is not known yet."""
        return False

    def is_awaited(self, now: float) -> bool:
        """Whether the end came right behind the request."""
        return now - self.call.received <= _PROMPT_END_S

    def written(self, now: float) -> None:
        """It is never written."""

    def abandon(self) -> None:
        """Tell the observer; a body that still waits is not decoded any more."""
        self._decoders.withdraw(self)
        _tell_failed(self.call, Cancelled.grpc, time.monotonic() - self.call.received)


class FailedTurn:
    """A hot request, or a whole connection, that was refused without computing anything."""

    def __init__(self, error: Exception, call: Call) -> None:
        self._call = call
        self._error = public(error, call.request_id)
        self.ending = call.ending
        self.answer: Answer | None = error_answer(
            self._error, call.request_id, has_body=not call.is_head, trace=call.trace
        )

    def begin(self) -> None:
        """Nothing."""

    def expire(self, now: float) -> bool:
        """Nothing waits."""
        return False

    def is_awaited(self, now: float) -> bool:
        """Whether the end came right behind the request."""
        return now - self._call.received <= _PROMPT_END_S

    def written(self, now: float) -> None:
        """Tell the observer."""
        _tell_failed(self._call, self._error.grpc, now - self._call.received)

    def abandon(self) -> None:
        """Tell the observer all the same: the request was refused."""
        self.written(time.monotonic())


class ColdTurn:
    """A request that ASGI answers when its turn comes.

    Attributes:
        cycle: uvicorn's state of it.
    """

    answer: Answer | None = None
    ending = KEEPS  # uvicorn closes the connection itself

    def __init__(self, cycle: RequestResponseCycle, start: Callable[[], None]) -> None:
        self.cycle = cycle
        self._start: Callable[[], None] | None = start

    def begin(self) -> None:
        """Hand it to ASGI, once."""
        start, self._start = self._start, None
        if start is not None:
            start()

    def expire(self, now: float) -> bool:
        """ASGI keeps its own time."""
        return False

    def is_awaited(self, now: float) -> bool:
        """It costs little: always."""
        return True

    def written(self, now: float) -> None:
        """ASGI's requests are counted by nobody here."""

    def abandon(self) -> None:
        """Tell the application that the caller left."""
        self.cycle.disconnected = True
        self.cycle.message_event.set()


def _tell_failed(call: Call, code: str, taken_s: float) -> None:
    call.line.observer.failed(
        call.model, call.protocol, code, taken_s, call.bytes_in, call.request_id, call.trace
    )
