"""What a blocking client needs of a transport: attempts that are sent, waited for and cancelled."""

from typing import Protocol

from anabranch_client.calls import Answer, Call
from anabranch_client.policy import Attempt, AttemptFailed

__all__ = ["Flights", "Landing", "Transport"]

Landing = tuple[Attempt, Answer | AttemptFailed]
"""An attempt, and its answer or why there is none."""


class Flights(Protocol):
    """Attempts of one call. For one thread."""

    def start(self, attempt: Attempt, call: Call[object], deadline: float) -> None:
        """Send a call. What fails is told by `wait`."""

    def wait(self, until: float) -> Landing | None:
        """Return the next attempt that ended; None where none did until then.

        There is at least one in flight.
        """
        ...

    def cancel(self) -> None:
        """Cancel every attempt in flight, at the server too."""


class Transport(Protocol):
    """Connections to all endpoints of a client. Any thread may use it."""

    def flights(self, *, alone: bool) -> Flights:
        """Return room for the attempts of one call.

        Args:
            alone: whether at most one is ever in flight.
        """
        ...

    def close(self) -> None:
        """Close idle connections; those in use are closed after it."""
