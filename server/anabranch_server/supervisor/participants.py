"""What a switch works with, beside the agreement: shared words, workers, and whoever takes part."""

from collections.abc import Set as AbstractSet
from typing import Protocol

from anabranch_server.processes.messages import Message
from anabranch_server.supervisor.effects import Change, KillReason, WorkerId

__all__ = ["Participant", "Words", "Workers"]


class Words(Protocol):
    """The epoch page."""

    @property
    def words(self) -> int:
        """Number of words."""
        ...

    def load(self, index: int, /) -> int:
        """Return a word."""
        ...

    def store(self, index: int, value: int, /) -> None:
        """Set a word; whoever sees it also sees all that was written before."""
        ...


class Workers(Protocol):
    """Carries out what is decided about workers; a `Pool`."""

    def unheard(self) -> AbstractSet[WorkerId]:
        """Return the workers that live and have not said hello yet."""
        ...

    def send(self, worker: WorkerId, message: Message) -> None:
        """Say something to a worker."""
        ...

    def kill(self, worker: WorkerId, reason: KillReason, why: str) -> None:
        """End a worker."""
        ...


class Participant(Protocol):
    """Takes part in every switch, beside the workers, in the supervisor's process.

    For each change exactly one of `apply` and `abort` follows a `prepare` that returned.
    """

    async def prepare(self, change: Change) -> None:
        """Check and reserve all that `apply` needs.

        Raises:
            AnabranchError: why it cannot take part; the change is refused.
        """
        ...

    def apply(self, change: Change) -> None:
        """Take effect. Must not fail, nor wait; the shared word is stored right after."""
        ...

    def abort(self, change: Change) -> None:
        """Undo `prepare`. Must not fail."""
        ...
