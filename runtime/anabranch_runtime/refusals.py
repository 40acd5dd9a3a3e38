"""Answers to requests that are not computed: refused, sent away for others, or too late."""

from anabranch_runtime.executor import deliver
from anabranch_runtime.observing import GroupObserver
from anabranch_runtime.requests import Ticket
from anabranch_wire.errors import Cancelled, DeadlineExceeded, Overloaded

__all__ = ["drop", "send_away"]


def send_away(
    tickets: list[Ticket], model: str, retry_s: float, now: float, observer: GroupObserver
) -> None:
    """Count and answer tickets that had to make room for a higher priority."""
    for ticket in tickets:
        observer.shed("priority")
        ticket.finished = now
        ticket.error = Overloaded(
            f"model {model!r}: the queue is full, and another request has priority", retry_s
        )
    deliver(tickets)


def drop(tickets: list[Ticket], now: float, observer: GroupObserver) -> None:
    """Count and answer tickets that are cancelled or too late when their turn comes."""
    for ticket in tickets:
        ticket.finished = now
        waited_s = now - ticket.submitted
        if ticket.cancelled:
            observer.dropped("cancelled")
            ticket.error = Cancelled("the caller left before the request was computed")
            continue
        observer.dropped("expired")
        if ticket.request.deadline <= now:
            text = f"the deadline passed after {waited_s:.3f} s in the queue"
        else:
            text = f"too little time was left after {waited_s:.3f} s in the queue"
        ticket.error = DeadlineExceeded(text)
    deliver(tickets)
