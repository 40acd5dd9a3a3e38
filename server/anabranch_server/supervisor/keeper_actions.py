"""What people may ask of a model: each action changes the intent and has it carried out."""

from dataclasses import replace

from anabranch_server.administration import Action, ActionRequest
from anabranch_server.supervisor.desired import desired
from anabranch_server.supervisor.holds import Hold
from anabranch_server.supervisor.keeper_failures import of_delta, of_version
from anabranch_server.supervisor.keeper_state import KeptModel
from anabranch_wire.errors import AnabranchError, Conflict, InvalidInput, NotFound, Unavailable

__all__ = ["carry_out", "check_action", "previous_delta", "previous_version"]


def check_action(kept: KeptModel, action: Action, request: ActionRequest) -> None:
    """Check that an action makes sense now.

    Raises:
        NotFound: there is no such version.
        InvalidInput: the request makes no sense for the action.
    """
    version, intent = request.version, kept.intent
    if version is not None and action in ("reload", "unpin"):
        raise InvalidInput(f"{action} is about the whole model; it takes no version")
    if request.delta is not None and action != "rollback":
        raise InvalidInput(f"{action} takes no delta; deltas are for rollback")
    if action == "unload" and version is not None:
        if version not in kept.shelf.in_memory:
            raise NotFound(f"model {kept.name!r} has no loaded version {version}")
        if intent.hold is not None and intent.hold.version == version:
            raise InvalidInput(f"version {version} is pinned; unpin the model first")
    elif version is not None and not _is_there(kept, version):
        raise NotFound(f"model {kept.name!r} has no complete version {version} in the repository")
    if action == "rollback":
        _rollback_target(kept, request)


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
            return await _rollback(kept, request)
        case "unpin":
            return await kept.converge(replace(kept.intent, hold=None))
        case "reload":
            if request.force:
                kept.failures.forget()
                kept.delta_faults.forget()
            kept.accept_deltas()
            intent = replace(kept.intent, hold=None if request.unpin else kept.intent.hold)
            error = await kept.converge(intent)
            return error or _newest_refused(kept) or _deltas_refused(kept)


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


def previous_delta(kept: KeptModel) -> tuple[int, int] | None:
    """Return the version that answers, and the delta before the one that it is at.

    That is the newest one that was served before, or else the newest that there is; None where no
    version answers, or it is as it was published.
    """
    default = None if kept.state is None else kept.state.default
    if default is None:
        return None
    at = kept.shelf.in_memory[default].plan.delta
    served = [one for one in kept.shelf.retained.deltas(default) if one < at]
    if at == 0 or served:
        return None if at == 0 else (default, max(served))
    version = None if kept.seen is None else kept.seen.versions.get(default)
    ranges = () if version is None else version.deltas.ranges
    return default, max((min(last, at - 1) for first, last in ranges if first < at), default=0)


def _rollback_target(kept: KeptModel, request: ActionRequest) -> tuple[int, int | None]:
    """Return the version and delta that a rollback goes to; no delta is the one it is at.

    Raises:
        NotFound: there is no such version or delta.
    """
    version, delta = request.version, request.delta
    if version is None and delta is None:
        if (previous := previous_version(kept)) is not None:
            return previous, None
        if (before := previous_delta(kept)) is not None:
            return before
        raise NotFound(f"model {kept.name!r} has no previous version or delta to go back to")
    if version is None:
        version = None if kept.state is None else kept.state.default
        if version is None:
            raise NotFound(f"model {kept.name!r} has no version that answers; name one")
    if delta:
        _check_delta(kept, version, delta)
    return version, delta


def _check_delta(kept: KeptModel, version: int, delta: int) -> None:
    """Check that a version has a delta.

    Raises:
        NotFound: it has none of that number.
    """
    loaded = kept.shelf.in_memory.get(version)
    if loaded is not None and delta in (loaded.plan.delta, *kept.shelf.retained.deltas(version)):
        return
    seen = None if kept.seen is None else kept.seen.versions.get(version)
    newest = 0 if seen is None else seen.deltas.newest
    if seen is None or delta not in seen.deltas:
        has = f"the newest is {newest}" if newest else "it has none"
        raise NotFound(f"model {kept.name!r}, version {version}: no delta {delta}; {has}")


async def _load(kept: KeptModel, version: int | None) -> AnabranchError | None:
    intent = kept.intent
    if version is None:
        kept.failures.forget()
        error = await kept.converge(replace(intent, unloads=frozenset(), unloaded=False))
        if kept.state is None or not kept.state.served:
            return error or Unavailable("no version could be loaded")
        return error
    if error := await _at_hand(kept, version, None):
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


async def _rollback(kept: KeptModel, request: ActionRequest) -> AnabranchError | None:
    target, delta = _rollback_target(kept, request)
    if error := await _at_hand(kept, target, delta):
        return error
    reached = kept.shelf.found[target].plan.delta
    intent = replace(
        kept.intent,
        hold=Hold(target, reached if delta is None else delta),
        unloads=kept.intent.unloads - {target},
        unloaded=False,
    )
    if delta is not None:
        kept.delta_faults.forget(target)
    error = await kept.converge(intent, "rollback", is_strict=True)
    if error is not None and target in kept.shelf.in_memory:
        kept.delta_faults.passed(target, kept.shelf.in_memory[target].plan.delta)
    return error


async def _at_hand(kept: KeptModel, version: int, delta: int | None) -> AnabranchError | None:
    """Make sure that a version can be switched to, whatever is known against it.

    Args:
        kept: the model.
        version: its number.
        delta: that it has to be at where it is looked at anew; None is as far as deltas lead.
    """
    if version in kept.shelf.found:
        return None
    kept.failures.forget(version)
    kept.delta_faults.forget(version)
    return await kept.obtain(version, delta)


def _newest_refused(kept: KeptModel) -> AnabranchError | None:
    """Return why the newest version is not served, where that was found and reported before."""
    facts = kept.facts(kept.intent)
    newest = max(facts.present.complete, default=None)
    if newest is None or kept.intent.hold is not None:
        return None
    if newest in desired(facts).behind:
        why = "it has seen older events than the version that is served; see catch_up"
        return of_version(newest, Conflict(why))
    if newest not in facts.broken:
        return None
    error = kept.failures.error_of(newest)
    if error is None or (facts.default is not None and newest <= facts.default):
        return None
    return of_version(newest, error)


def _deltas_refused(kept: KeptModel) -> AnabranchError | None:
    """Return why what answers is not at its newest delta, where that was refused before.

    Of several it is about the newest, which was to lead past the others.
    """
    default = None if kept.state is None else kept.state.default
    fault = None if default is None else kept.delta_faults.newest(default)
    if default is None or fault is None or kept.intent.hold is not None:
        return None
    return of_version(default, of_delta(fault.sequence, fault.error), "goes no further")


def _is_there(kept: KeptModel, version: int) -> bool:
    if version in kept.shelf.in_memory:
        return True
    return kept.seen is not None and version in kept.seen.versions
