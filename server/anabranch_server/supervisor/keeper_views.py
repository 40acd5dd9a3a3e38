"""One model as the admin doors show it."""

import msgspec

from anabranch_server.describe import (
    IndexEntry,
    ModelState,
    ModelView,
    SplitView,
    VersionView,
)
from anabranch_server.processes.plans import VersionPlan
from anabranch_server.supervisor.keeper_failures import of_delta
from anabranch_server.supervisor.keeper_state import KeptModel

__all__ = ["index_entries", "model_view", "snapshot"]


def model_view(kept: KeptModel) -> ModelView:
    """Return the model with its versions in memory, on their way in or out, or refused."""
    state, hold = kept.state, kept.intent.hold
    there = _there(kept)
    numbers = {*kept.shelf.in_memory, *(n for n in there if kept.failures.error_of(n))}
    if kept.loading is not None:
        numbers.add(kept.loading)
    labels = dict(kept.intent.labels) if state is None else dict(state.labels)
    return ModelView(
        name=kept.name,
        state=_model_state(kept),
        pinned=None if hold is None else _snapshot(hold.version, hold.delta),
        policy=_policy(kept),
        labels=labels,
        versions=[_version(kept, number) for number in sorted(numbers, reverse=True)],
        last_error=kept.failures.last,
    )


def index_entries(kept: KeptModel) -> list[IndexEntry]:
    """Return every version that is known, ascending; one entry without a version if none is."""
    numbers = sorted({*_there(kept), *kept.shelf.in_memory})
    if not numbers:
        return [IndexEntry(kept.name, "", "UNAVAILABLE", "no version is loaded")]
    return [
        IndexEntry(kept.name, str(n), _version_state(kept, n), _reason(kept, n)) for n in numbers
    ]


def snapshot(kept: KeptModel) -> VersionPlan | None:
    """Return the version that answers by default."""
    state = kept.state
    if state is None or state.default is None:
        return None
    return kept.shelf.in_memory[state.default].plan


def _there(kept: KeptModel) -> set[int]:
    """Return the versions that the repository has, complete or not."""
    seen = kept.seen
    return set() if seen is None else {*seen.versions, *seen.changing}


def _version(kept: KeptModel, number: int) -> VersionView:
    loaded = kept.shelf.in_memory.get(number)
    state = _version_state(kept, number)
    last_error = _last_error(kept, number)
    if loaded is None:
        return VersionView(number, state, 0, last_error=last_error)
    plan = loaded.plan
    return VersionView(
        version=number,
        state=state,
        delta=plan.delta,
        step=plan.step,
        event_time=plan.event_time,
        published=plan.published,
        applied=kept.shelf.applied.get(number),
        split=None
        if plan.split is None
        else SplitView(plan.split.lookups_cut, plan.split.lookups_left, plan.split.max_abs_diff),
        last_error=last_error,
        kept=kept.state is not None and number not in kept.state.served,
    )


def _last_error(kept: KeptModel, number: int) -> str | None:
    """Why the files of a version, as they are now, or its newest delta were refused."""
    error, fault = kept.failures.error_of(number), kept.delta_faults.of(number)
    if error is None and fault is not None:
        error = of_delta(fault.sequence, fault.error)
    return None if error is None else error.message


def _model_state(kept: KeptModel) -> ModelState:
    if kept.state is not None and kept.state.default is not None:
        return "READY"
    return "UNAVAILABLE" if kept.loading is None else "LOADING"


def _version_state(kept: KeptModel, number: int) -> ModelState:
    if number in kept.leaving:
        return "UNLOADING"
    if kept.state is not None and number in kept.state.served:
        return "READY"
    return "LOADING" if number == kept.loading else "UNAVAILABLE"


def _reason(kept: KeptModel, number: int) -> str:
    """Why a version is not READY; empty where it is."""
    state = _version_state(kept, number)
    if state == "READY":
        return ""
    if state != "UNAVAILABLE":
        return state.lower()
    if number in kept.shelf.in_memory:
        return "kept in memory for a rollback"
    error = kept.failures.error_of(number)
    if error is not None:
        return error.message
    if kept.seen is not None and number in kept.seen.changing:
        return "there is no manifest, and the files have not been still for long enough"
    if kept.intent.unloaded or number in kept.intent.unloads:
        return "unloaded"
    return "not among the versions that are to be served"


def _policy(kept: KeptModel) -> dict[str, object] | None:
    if kept.deployment is None:
        return None
    versions = kept.deployment.versions
    if isinstance(versions, str):
        return {versions: True}
    told = msgspec.to_builtins(versions)
    return {name: value for name, value in told.items() if value is not None}


def _snapshot(version: int, delta: int) -> str:
    return f"{version}+{delta}" if delta else str(version)
