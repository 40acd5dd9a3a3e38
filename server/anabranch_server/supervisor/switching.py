"""What whoever decides what a model serves needs from whoever makes it current everywhere."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from anabranch_server.processes.plans import StatePlan

__all__ = ["Switching"]


class Switching(Protocol):
    """Makes serving states current in every worker. Belongs to the supervisor's event loop."""

    def adopted(self) -> Mapping[str, StatePlan]:
        """Return what workers served already when this supervisor began, by model.

        Complete once the pool has taken its workers; empty at a server's start.
        """
        ...

    async def switch(
        self, model: str, state: StatePlan | None, decide: Callable[[int], Awaitable[None]]
    ) -> int:
        """Make `state` what the model serves, in all workers at one moment.

        Switches of one model follow each other; those of several models do not wait for each
        other. Cancelling before the decision aborts; afterwards the switch is finished first.

        Args:
            model: model name.
            state: what to serve; None when the model is gone from the repository.
            decide: makes the decision durable, given the epoch; what it raises aborts. It is the
                last step that may fail.

        Returns:
            The epoch of the state.

        Raises:
            AnabranchError: a worker cannot prepare the state, or there is none; nothing changed.
        """
        ...

    def lacks(self, model: str) -> bool:
        """Return whether a worker could not prepare what the model serves.

        As when files are gone that it is built from, or where `is_orphaned`. A switch to a state
        that can be prepared ends this, also where the state is the same once more.
        """
        ...

    def is_orphaned(self, model: str) -> bool:
        """Return whether the model's rows belong to a supervisor that is gone.

        Workers serve on with them, but none that joins can have them, and they change no more. A
        switch to the same state gives the model rows of this supervisor's.
        """
        ...

    def give_up(self, model: str) -> None:
        """Go on with workers that lack the model as they are: nothing can be done now."""
        ...
