"""Actions on a model, and how far they are."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import msgspec
from fastapi import FastAPI, Request, Response

from anabranch_server.administration import Action, ActionRequest, OperationView
from anabranch_server.app.json_bodies import describe_body, read_body
from anabranch_server.app.openapi import JsonObject, error_responses
from anabranch_server.audit import Changes
from anabranch_wire.errors import Conflict, InvalidInput, NotFound, TooLarge

__all__ = ["add_actions"]

_Version = Annotated[int, msgspec.Meta(ge=1, le=10**18 - 1)]
_Delta = Annotated[int, msgspec.Meta(ge=0, le=10**8 - 1)]
_Wait = Annotated[float, msgspec.Meta(ge=0, le=3600)]

_WAIT_S: Final = 30.0
_ACCEPTED: Final = 202


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every action is told.

    Attributes:
        wait_s: how long to wait for the end; 0 answers at once.
    """

    wait_s: _Wait = _WAIT_S


class LoadBody(_Body, frozen=True):
    """What to load.

    Attributes:
        version: the version; what the policy says without one.
        wait_s: how long to wait for the end; 0 answers at once.
    """

    version: _Version | None = None


class UnloadBody(_Body, frozen=True):
    """What to unload.

    Attributes:
        version: the version; all of them without one.
        wait_s: how long to wait for the end; 0 answers at once.
    """

    version: _Version | None = None


class ReloadBody(_Body, frozen=True):
    """How to look at the repository.

    Attributes:
        force: try broken versions and deltas again although nothing changed.
        unpin: release a hold first.
        wait_s: how long to wait for the end; 0 answers at once.
    """

    force: bool = False
    unpin: bool = False


class RollbackBody(_Body, frozen=True):
    """Where to go back to.

    Attributes:
        version: the version; the previous one without it, or with a delta the one that answers.
        delta: the delta, 0 as published; without it the one that the version is at in memory.
        wait_s: how long to wait for the end; 0 answers at once.
    """

    version: _Version | None = None
    delta: _Delta | None = None


class UnpinBody(_Body, frozen=True):
    """How to release a hold.

    Attributes:
        wait_s: how long to wait for the end; 0 answers at once.
    """


_ACTIONS: Final[tuple[tuple[Action, type[_Body], str, str], ...]] = (
    (
        "load",
        LoadBody,
        "Load versions",
        "Loads a version, or what the policy names, and serves it when every worker is ready to.",
    ),
    ("unload", UnloadBody, "Unload versions", "Stops serving a version, or all, and frees it."),
    (
        "reload",
        ReloadBody,
        "Look at the repository now",
        "Applies new versions, deltas and a changed serving.yaml at once. With `wait_s: 0` this is "
        "how a publisher says that there is something new.",
    ),
    (
        "rollback",
        RollbackBody,
        "Go back",
        "Serves an earlier snapshot and holds the model there: neither new versions or deltas nor "
        "a restart move on until `unpin`. Instant while the snapshot is kept in memory.",
    ),
    ("unpin", UnpinBody, "Release a hold", "Follows the policy again after a rollback."),
)

_RUNNING: Final[dict[int | str, JsonObject]] = {
    200: {"description": "It ended: `DONE`, `CANCELLED`, or `FAILED` with the reason in `error`."},
    _ACCEPTED: {
        "description": "It is at work: ask `/admin/v1/operations/ID`.",
        "model": OperationView,
    },
}


def add_actions(app: FastAPI, changes: Changes) -> None:
    """Add one route for each action."""
    for action, form, summary, description in _ACTIONS:
        app.add_api_route(
            f"/admin/v1/models/{{model}}/{action}",
            _endpoint(changes, action, form),
            methods=["POST"],
            tags=["Actions"],
            summary=summary,
            description=description,
            operation_id=action,
            response_model=OperationView,
            openapi_extra=describe_body(form),
            responses={**error_responses(InvalidInput, NotFound, Conflict, TooLarge), **_RUNNING},
        )


def _endpoint(
    changes: Changes, action: Action, form: type[_Body]
) -> Callable[..., Awaitable[OperationView]]:
    async def act(request: Request, response: Response, model: str) -> OperationView:
        told = msgspec.structs.asdict(await read_body(request, form))
        operation = await changes.act(action, model, ActionRequest(**told))
        if operation.state == "RUNNING":
            response.status_code = _ACCEPTED
        return operation

    return act
