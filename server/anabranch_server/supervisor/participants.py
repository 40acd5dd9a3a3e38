"""What a switch works with, beside the agreement: shared words, workers, and whoever takes part."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from anabranch_server.processes.message import Message
from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor.alterations import Alteration
from anabranch_server.supervisor.effects import Change, KillReason, WorkerId

__all__ = ["Draft", "Participant", "Words", "Workers"]


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

    def send(self, worker: WorkerId, message: Message, fds: Sequence[int] = ()) -> None:
        """Say something to a worker; the descriptors of the message stay the caller's."""
        ...

    def kill(self, worker: WorkerId, reason: KillReason, why: str) -> None:
        """End a worker."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """What a model is to serve, before it has an epoch.

    Attributes:
        model: model name.
        state: what to serve; None when the model is gone.
        alteration: what changes in the rows of one of its versions, if anything does.
    """

    model: str
    state: StatePlan | None
    alteration: Alteration | None = None


class Participant(Protocol):
    """Takes part in every switch, beside the workers, in the supervisor's process.

    A model has one switch at a time. For each exactly one of `apply` and `abort` follows a
    `prepare` that returned.
    """

    async def prepare(self, draft: Draft) -> StatePlan | None:
        """Check and reserve all that `apply` needs.

        Returns:
            The state as workers are to prepare it.

        Raises:
            AnabranchError: why it cannot take part; the switch is refused.
        """
        ...

    async def apply(self, change: Change) -> None:
        """Take effect; the shared word is stored right after. Must not fail."""
        ...

    def abort(self, model: str) -> None:
        """Undo `prepare`. Must not fail."""
        ...

    def release(self, model: str, floor: int) -> None:
        """Note that nobody reads an epoch of the model older than `floor` any more."""
        ...

    def descriptors(self, state: StatePlan) -> Sequence[int]:
        """Return what goes with a `Prepare` of a state that is prepared here, or current.

        They stay the participant's.
        """
        ...
