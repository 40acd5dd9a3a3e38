"""Brings finished tickets from executor threads to the event loop, many with one wake-up."""

import asyncio
import logging
import threading
from typing import Final, Protocol

from anabranch_runtime.requests import Ticket

__all__ = ["LoopSink", "LoopTicket", "Settled"]

_LOGGER: Final = logging.getLogger(__name__)


class Settled(Protocol):
    """Where the answers of one connection gather until they are written together."""

    def flush(self) -> None:
        """Write what is ready. Loop thread."""

    def give_up(self) -> None:
        """Close at once: what was ready cannot be written. Loop thread."""


class LoopTicket(Ticket):
    """A ticket whose answer is made on the event loop."""

    __slots__ = ()

    def settle(self) -> Settled | None:
        """Turn the result into an answer.

        Loop thread; never raises.

        Returns:
            What to flush once all tickets of this turn of the loop are settled; None when nobody
            waits any more.
        """
        raise NotImplementedError


class LoopSink:
    """A `ReplySink` for tickets that belong to one event loop.

    However many executors finish while the loop is busy, it is woken once, settles all their
    tickets and flushes each connection once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._finished: list[LoopTicket] = []

    def deliver(self, tickets: list[Ticket]) -> None:
        """Take finished `LoopTicket`s. Any thread; after the loop has closed they are dropped."""
        with self._lock:
            asleep = not self._finished
            self._finished += tickets  # type: ignore[arg-type]  # only LoopTickets name this sink
        if asleep:
            try:
                self._loop.call_soon_threadsafe(self._settle)
            except RuntimeError:  # the loop is closed: nobody is left to answer
                self._finished = []

    def _settle(self) -> None:
        with self._lock:
            finished, self._finished = self._finished, []
        touched: dict[Settled, None] = {}
        for ticket in finished:
            connection = ticket.settle()
            if connection is not None:
                touched[connection] = None
        for connection in touched:
            try:
                connection.flush()
            except Exception:  # the edge of the loop: the other connections get their answers
                _LOGGER.exception("internal error", extra={"event": "internal_error"})
                connection.give_up()  # else its peer would wait for ever
