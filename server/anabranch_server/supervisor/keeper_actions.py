"""What people may ask of a model: each action changes the intent and has it carried out."""

from dataclasses import replace

from anabranch_server.administration import Action, ActionRequest
from anabranch_server.supervisor.desired import desired
from anabranch_server.supervisor.holds import Hold
from anabranch_server.supervisor.keeper_failures import of_version
from anabranch_server.supervisor.keeper_state import KeptModel
from anabranch_wire.errors import AnabranchError, InvalidInput, NotFound, Unavailable

__all__ = ["carry_out", "check_action", "previous_version"]


def check_action(kept: KeptModel, action: Action, request: ActionRequest) -> None:
    """Check that an action makes sense now.

    Raises:
        NotFound: there is no such version.
        InvalidInput: the request makes no sense for the action.
    """
    version, intent = request.version, kept.intent
    if version is not None and action in ("reload", "unpin"):
        raise InvalidInput(f"{action} is about the whole model; it takes no version")
    if request.delta is not None and (action != "rollback" or request.delta != 0):
        raise InvalidInput(f"delta {request.delta}: this release serves no deltas; expected none")
    if action == "unload" and version is not None:
        if version not in kept.shelf.in_memory:
            raise NotFound(f"model {kept.name!r} has no loaded version {version}")
        if intent.hold is not None and intent.hold.version == version:
            raise InvalidInput(f"version {version} is pinned; unpin the model first")
    elif version is not None and not _is_there(kept, version):
        raise NotFound(f"model {kept.name!r} has no complete version {version} in the repository")
    if action == "rollback" and version is None and previous_version(kept) is None:
        raise NotFound(f"model {kept.name!r} has no previous version to go back to")


async def carry_out(
    kept: KeptModel, action: Action, request: ActionRequest
) -> AnabranchError | None:
    """Do it; returns why it failed."""
    match action:
        case "load":
            return await _load(kept, request.version)
        case "unload":
            return await _unload(kept, request.version)
        case "rollback":
            return await _rollback(kept, request.version)
        case "unpin":
            return await kept.converge(replace(kept.intent, hold=None))
        case "reload":
            if request.force:
                kept.failures.forget()
            intent = replace(kept.intent, hold=None) if request.unpin else kept.intent
            return await kept.converge(intent) or _newest_refused(kept)


def previous_version(kept: KeptModel) -> int | None:
    """Return the version that a rollback without a number goes to.

    That is the one below the version that answers which answered last, or else the newest there is.
    A version that is served only because somebody named it is not what answered before.
    """
    facts = kept.facts(kept.intent)
    complete, broken, default = facts.present.complete, facts.broken, facts.default
    usable = {n for n in complete if broken.get(n) != complete[n]} | facts.loaded.keys()
    older = {n for n in usable if default is None or n < default}
    labels = {**facts.deployment.labels, **facts.intent.labels}
    unnamed = older - facts.intent.loads - set(labels.values())
    return next((n for n in kept.shelf.past.answered if n in older), max(unnamed, default=None))


async def _load(kept: KeptModel, version: int | None) -> AnabranchError | None:
    intent = kept.intent
    if version is None:
        kept.failures.forget()
        error = await kept.converge(replace(intent, unloads=frozenset(), unloaded=False))
        if kept.state is None or not kept.state.served:
            return error or Unavailable("no version could be loaded")
        return error
    if error := await _at_hand(kept, version):
        return error
    intent = replace(intent, unloads=intent.unloads - {version}, unloaded=False)
    if version not in desired(kept.facts(intent)).served:
        intent = replace(intent, loads=intent.loads | {version})
    return await kept.converge(intent, is_strict=True)


async def _unload(kept: KeptModel, version: int | None) -> AnabranchError | None:
    intent = kept.intent
    if version is None:
        return await kept.converge(replace(intent, loads=frozenset(), unloaded=True))
    return await kept.converge(
        replace(intent, loads=intent.loads - {version}, unloads=intent.unloads | {version})
    )


async def _rollback(kept: KeptModel, version: int | None) -> AnabranchError | None:
    target = previous_version(kept) if version is None else version
    if target is None:
        return NotFound("there is no previous version to go back to")
    if error := await _at_hand(kept, target):
        return error
    intent = replace(
        kept.intent,
        hold=Hold(target),
        unloads=kept.intent.unloads - {target},
        unloaded=False,
    )
    return await kept.converge(intent, "rollback", is_strict=True)


async def _at_hand(kept: KeptModel, version: int) -> AnabranchError | None:
    """Make sure that a version can be switched to, whatever is known against it."""
    if version in kept.shelf.found:
        return None
    kept.failures.forget(version)
    return await kept.obtain(version)


def _newest_refused(kept: KeptModel) -> AnabranchError | None:
    """Return why the newest version is not served, where it was tried and refused before."""
    facts = kept.facts(kept.intent)
    newest = max(facts.present.complete, default=None)
    if newest is None or newest not in facts.broken or kept.intent.hold is not None:
        return None
    error = kept.failures.error_of(newest)
    if error is None or (facts.default is not None and newest <= facts.default):
        return None
    return of_version(newest, error)


def _is_there(kept: KeptModel, version: int) -> bool:
    if version in kept.shelf.in_memory:
        return True
    return kept.seen is not None and version in kept.seen.versions
