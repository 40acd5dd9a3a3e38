"""How a handler thread waits for its ticket, and how executors wake it."""

import threading
import time

from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_wire.errors import DeadlineExceeded

__all__ = ["RpcTicket", "ThreadSink"]


class RpcTicket(Ticket):
    """A ticket that one handler thread waits for.

    The wait is a plain lock, taken at birth and released by the sink: the cheapest hand-over that
    Python has.
    """

    __slots__ = ("_finished",)

    def __init__(self, request: ScoreRequest, version: ServedVersion, sink: "ThreadSink") -> None:
        super().__init__(request, version, sink)
        self._finished = threading.Lock()
        self._finished.acquire()

    def cancel(self) -> None:
        """Say that nobody waits any more. Any thread may call it, also after the end."""
        self.cancelled = True

    def finish(self) -> None:
        """Wake the waiting thread. The sink calls it once."""
        self._finished.release()

    def wait(self) -> None:
        """Return when the ticket is finished.

        Raises:
            DeadlineExceeded: it was not before the request's deadline; the ticket is cancelled.
            AnabranchError: it finished without an answer.
        """
        left_s = self.request.deadline - time.monotonic()
        if not self._finished.acquire(timeout=max(0.0, left_s)):
            self.cancelled = True
            raise DeadlineExceeded("the deadline passed before the answer was ready")
        if self.error is not None:
            raise self.error


class ThreadSink:
    """Wakes the threads behind finished tickets. Stateless; safe from any thread."""

    def deliver(self, tickets: list[Ticket]) -> None:
        """Wake one thread per ticket. Every ticket of this sink is an `RpcTicket`."""
        for ticket in tickets:
            assert isinstance(ticket, RpcTicket)
            ticket.finish()
