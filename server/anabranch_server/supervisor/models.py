"""What admin doors may ask about models: the half of `Administration` that keepers answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from anabranch_server.administration import Action, ActionRequest, OperationView
from anabranch_server.describe import IndexEntry, ModelView
from anabranch_server.supervisor.keeper import ModelKeeper
from anabranch_server.supervisor.keeper_views import index_entries, model_view, snapshot
from anabranch_server.supervisor.keeping import Keeping
from anabranch_server.supervisor.operations import Operations
from anabranch_wire.errors import InvalidInput, NotFound
from anabranch_wire.names import check_label

__all__ = ["ModelAdministration"]

_MAX_VERSION = 10**18 - 1


class ModelAdministration:
    """Models, versions and actions on them. Belongs to the event loop.

    Args:
        keeping: every model.
        look: looks at the repository now and tells keepers what it saw.
        incarnation: of the supervisor; names of actions differ by it.
    """

    def __init__(
        self, keeping: Keeping, look: Callable[[], Awaitable[object]], incarnation: int = 1
    ) -> None:
        self._keeping = keeping
        self._look = look
        self._operations = Operations(incarnation=incarnation)

    def models(self) -> list[ModelView]:
        """Return every model, by name."""
        return [model_view(keeper.kept) for keeper in self._keeping.keepers.values()]

    def model(self, name: str) -> ModelView:
        """Return one model.

        Raises:
            NotFound: there is no such model.
        """
        return model_view(self._keeping.keeper(name).kept)

    def folder(self, name: str) -> Path:
        """Return where a model lies.

        Raises:
            NotFound: there is no such model, or none in the repository any more.
        """
        seen = self._keeping.keeper(name).kept.seen
        if seen is None:
            raise NotFound(f"model {name!r} is not in the repository any more")
        return seen.path

    def index(self, *, only_ready: bool) -> list[IndexEntry]:
        """Return every version by model name, then number, with its state and the reason."""
        return [
            entry
            for keeper in self._keeping.keepers.values()
            for entry in index_entries(keeper.kept)
            if entry.state == "READY" or not only_ready
        ]

    def snapshots(self) -> Mapping[str, str]:
        """Return model name -> snapshot that answers by default, such as `42+17`."""
        plans = {name: snapshot(keeper.kept) for name, keeper in self._keeping.keepers.items()}
        return {
            name: f"{plan.version}+{plan.delta}" if plan.delta else str(plan.version)
            for name, plan in plans.items()
            if plan is not None
        }

    async def act(self, action: Action, model: str, request: ActionRequest) -> OperationView:
        """Begin an action, wait up to `wait_s` for its end, and return it.

        A version that is refused makes the operation FAILED; that is no error of the call.

        Raises:
            NotFound: no such model, or no such version or delta of it.
            Conflict: an action on the model is at work already.
            InvalidInput: the request makes no sense for the action.
            Unavailable: the repository has to be looked at, and cannot be.
        """
        keeper = await self._keeper_for(action, model, request)
        operation = self._operations.begin(action, model)
        keeper.begin(action, request, operation, self._look)
        await operation.wait(request.wait_s)
        return operation.view()

    def operation(self, identity: str) -> OperationView:
        """Return an action that was begun.

        Raises:
            NotFound: none of that id, or it is long over.
        """
        return self._operations.view(identity)

    def operations(self) -> Sequence[OperationView]:
        """Return the actions at work and the last ones that ended, newest first."""
        return self._operations.views()

    async def set_labels(self, model: str, labels: Mapping[str, int | None]) -> ModelView:
        """Merge labels into those set before; None removes one. Kept over restarts.

        Raises:
            NotFound: there is no such model.
            InvalidInput: a name is no label, or a number no version.
            Unavailable: they cannot be written down.
        """
        for label, version in labels.items():
            check_label(label)
            if version is not None and not 1 <= version <= _MAX_VERSION:
                raise InvalidInput(f"label {label!r}: version {version}: expected 1 or more")
        keeper = self._keeping.keeper(model)
        await keeper.set_labels(dict(labels))
        return model_view(keeper.kept)

    async def _keeper_for(self, action: Action, model: str, request: ActionRequest) -> ModelKeeper:
        """Return the model's keeper once the action makes sense.

        What is not known is looked for once more, since it may have been published just now.
        """
        try:
            keeper = self._keeping.keeper(model)
            keeper.check(action, request)
        except NotFound:
            await self._look()
            keeper = self._keeping.keeper(model)
            keeper.check(action, request)
        return keeper
