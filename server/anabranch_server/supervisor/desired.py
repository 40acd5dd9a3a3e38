"""What one model should serve: policy on plain values, without clock, file or process."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.version_choice import default_version, select_versions
from anabranch_server.processes.plans import VersionPlan
from anabranch_server.supervisor.delta_choice import (
    NO_DELTA_FACTS,
    DeltaFacts,
    delta_to_ask,
    wanted_delta,
)
from anabranch_server.supervisor.holds import Hold

__all__ = [
    "Desired",
    "Facts",
    "Intent",
    "Loaded",
    "Present",
    "desired",
    "held_anew",
    "held_delta",
    "namers",
    "ready_first",
]


@dataclass(frozen=True, slots=True)
class Intent:
    """What people have asked of a model, beside serving.yaml.

    Attributes:
        hold: a rollback that is in force.
        labels: label -> version, over those of serving.yaml.
        loads: versions to serve beyond the policy.
        unloads: versions not to serve although the policy has them.
        unloaded: whether nothing of the model is to be served.
    """

    hold: Hold | None = None
    labels: Mapping[str, int] = field(default_factory=dict)
    loads: frozenset[int] = frozenset()
    unloads: frozenset[int] = frozenset()
    unloaded: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """A version that was found good.

    Attributes:
        plan: what workers build.
        fingerprint: of its files then.
    """

    plan: VersionPlan
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Present:
    """What the repository has of a model.

    Attributes:
        complete: complete versions -> fingerprint of their files.
        changing: versions that are there, but not complete.
    """

    complete: Mapping[int, str] = field(default_factory=dict)
    changing: frozenset[int] = frozenset()

    def __contains__(self, number: int) -> bool:
        return number in self.complete or number in self.changing


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the choice depends on.

    Attributes:
        present: what the repository has.
        deployment: serving.yaml.
        intent: what people asked for.
        loaded: versions that are in memory, or could be at once.
        served: versions that are served now.
        default: version that answers by default now.
        history: versions that answered by default before, or were served; most recent first.
        broken: version -> fingerprint of the files that could not be served.
        event_times: newest event of versions that were loaded once, with the fingerprint.
        deltas: what has been published for versions since, where anything has.
        examined: newest delta that was there when a version was loaded.
    """

    present: Present
    deployment: Deployment
    intent: Intent = Intent()
    loaded: Mapping[int, Loaded] = field(default_factory=dict)
    served: tuple[int, ...] = ()
    default: int | None = None
    history: tuple[int, ...] = ()
    broken: Mapping[int, str] = field(default_factory=dict)
    event_times: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    deltas: Mapping[int, DeltaFacts] = field(default_factory=dict)
    examined: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Desired:
    """What a model should serve.

    Attributes:
        load: versions to load first, newest first; with any left, the rest is not to be acted on.
        served: versions that requests may name, ascending.
        kept: versions that stay in memory for a rollback, ascending.
        labels: label -> version, loaded or not.
        default: version that answers requests naming none.
        default_label: label that was to name it.
        required: whether readiness needs the model.
        missing: versions that are named somewhere and cannot be had, ascending.
        behind: versions that are not switched to because what is served has seen newer events.
        deltas: versions that are to be at another delta than they are -> that one: of `served`,
            and of those that are served until `load` is done. Those kept for a rollback stay.
    """

    load: tuple[int, ...] = ()
    served: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    default: int | None = None
    default_label: str | None = None
    required: bool = True
    missing: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    deltas: Mapping[int, int] = field(default_factory=dict)


_NOTHING: Final = frozenset[int]()
_LONG_AGO: Final = float("-inf")


def desired(facts: Facts) -> Desired:
    """Return what the model should serve.

    Versions that cannot be served make room for older ones. A version that is gone from the
    repository is let go unless nothing else is left. A hold names the version that answers; where
    that cannot be had, the newest one below it does, and never one above.
    """
    deployment, intent = facts.deployment, facts.intent
    labels = {**deployment.labels, **intent.labels}
    frame = Desired(labels=labels, default_label=deployment.traffic.default)
    if intent.unloaded:
        return replace(frame, required=False)
    can = {n for n in {*facts.present.complete, *facts.loaded} if _can_serve(n, facts)}
    behind = _behind(can - _named(labels, facts), facts)
    chosen, missing = _chosen(can, behind, labels, facts)
    chosen = chosen - intent.unloads
    if not chosen and not intent.unloads:
        chosen = {n for n in facts.served if n in facts.loaded}
    load = tuple(sorted((n for n in chosen if _must_load(n, facts)), reverse=True))
    served = tuple(sorted(chosen))
    return replace(
        frame,
        load=load,
        served=served,
        kept=_kept(served, facts),
        default=_default(chosen, labels, facts),
        required=deployment.required,
        missing=missing,
        behind=tuple(sorted(behind)),
        deltas=dict(_other_deltas({*served, *(facts.served if load else ())}, facts)),
    )


def ready_first(wanted: Desired, facts: Facts, *, is_asked: bool = False) -> Desired:
    """Return what to serve before more versions are loaded; `wanted` where that is no better.

    It is where what answers is newer, else a model would never get anywhere whose versions come
    faster than they are loaded; and where something goes at once: what is to be unloaded, or what
    somebody rolls back from.

    Args:
        wanted: what the model should serve.
        facts: that it was chosen by.
        is_asked: whether somebody asks for it just now.
    """
    complete, served = facts.present.complete, {*facts.served}
    if not wanted.load or facts.default is None:
        return wanted
    # Nothing but what is at hand, and as it is at hand where its files are others by now.
    there = {n: one.fingerprint for n, one in facts.loaded.items() if n in complete}
    ready = desired(replace(facts, present=replace(facts.present, complete=there)))
    goes = bool(facts.intent.unloads & served)
    if ready.default is not None and (hold := facts.intent.hold) is not None and is_asked:
        is_other = facts.default != hold.version or hold.version in ready.deltas
        goes = goes or (ready.default == hold.version and is_other)
    is_newer = (ready.default or 0) > facts.default and ready.default not in served
    return ready if goes or is_newer else wanted


def held_anew(deltas: Mapping[int, int], intent: Intent, before: Intent) -> dict[int, int]:
    """Return those of the deltas that a rollback needs; what it does not need comes after it."""
    hold = intent.hold
    if hold is None or hold == before.hold:
        return {}
    return {number: to for number, to in deltas.items() if number == hold.version}


def held_delta(number: int, intent: Intent) -> int | None:
    """Return the delta that a rollback holds a version at."""
    hold = intent.hold
    return hold.delta if hold is not None and hold.version == number else None


def namers(number: int, facts: Facts) -> tuple[str, ...]:
    """Return, for people, who asks for a version by number."""
    intent, policy = facts.intent, facts.deployment.versions
    labels = {**facts.deployment.labels, **intent.labels}
    specific = () if isinstance(policy, str) else policy.specific or ()
    names = [f"label '{label}'" for label, named in sorted(labels.items()) if named == number]
    if number in specific:
        names.append("versions.specific in serving.yaml")
    if intent.hold is not None and intent.hold.version == number:
        names.append("the hold of a rollback")
    if number in intent.loads:
        names.append("a load by number")
    return tuple(names)


def _can_serve(number: int, facts: Facts) -> bool:
    """Whether a version is loaded, or worth a try; what is gone only where it is held."""
    present, hold = facts.present, facts.intent.hold
    if number in facts.loaded:
        return number in present or (hold is not None and number == hold.version)
    return facts.broken.get(number) != present.complete[number]


def _named(labels: Mapping[str, int], facts: Facts) -> set[int]:
    """Versions that somebody asks for by number, whatever they have seen."""
    intent, policy = facts.intent, facts.deployment.versions
    specific = () if isinstance(policy, str) else policy.specific or ()
    held = () if intent.hold is None else (intent.hold.version,)
    return {*labels.values(), *intent.loads, *specific, *held}


def _behind(candidates: Collection[int], facts: Facts) -> frozenset[int]:
    """Newer versions that have seen older events than what answers now."""
    if facts.deployment.catch_up == "allow" or facts.default is None:
        return _NOTHING
    current = facts.loaded.get(facts.default)
    if current is None or current.plan.event_time is None:
        return _NOTHING
    seen = current.plan.event_time
    return frozenset(
        n
        for n in candidates
        if n > facts.default
        and n not in facts.served
        and (event_time := _event_time(n, facts)) is not None
        and event_time < seen
    )


def _event_time(number: int, facts: Facts) -> float | None:
    known = facts.event_times.get(number)
    if known is None or known[0] != facts.present.complete.get(number):
        return None
    return known[1] if number in facts.loaded else max(known[1], _event_time_ahead(number, facts))


def _event_time_ahead(number: int, facts: Facts) -> float:
    """Newest event of deltas that have come since a version was looked at, and can be had."""
    told = facts.deltas.get(number, NO_DELTA_FACTS)
    newest, event_time = told.seen.newest, told.seen.event_time
    if event_time is None or facts.deployment.deltas.apply == "manual":
        return _LONG_AGO
    is_new = newest > facts.examined.get(number, 0)
    return event_time if is_new and delta_to_ask(0, told, newest) == newest else _LONG_AGO


def _chosen(
    can: Collection[int], behind: frozenset[int], labels: Mapping[str, int], facts: Facts
) -> tuple[set[int], tuple[int, ...]]:
    """Return versions to serve, and those that are named but cannot be had."""
    intent = facts.intent
    selection = select_versions(
        frozenset(can) - behind, facts.deployment.versions, {**labels, **_as_names(intent.loads)}
    )
    if intent.hold is None:
        return set(selection.load), selection.missing
    named = {*labels.values(), *intent.loads, intent.hold.version}
    chosen = {n for n in named if n in can}
    if intent.hold.version not in can:
        chosen |= set(sorted(n for n in can if n < intent.hold.version)[-1:])
    return chosen, tuple(sorted(n for n in named if n not in can))


def _as_names(loads: frozenset[int]) -> dict[str, int]:
    """A version that was asked for is chosen as one that a label names."""
    return {f"load {number}": number for number in loads}


def _must_load(number: int, facts: Facts) -> bool:
    """Whether a version is not in memory, or is there as its files no longer are."""
    now = facts.present.complete.get(number)
    loaded = facts.loaded.get(number)
    if loaded is None:
        return True
    return now not in (None, loaded.fingerprint) and facts.broken.get(number) != now


def _other_deltas(served: Collection[int], facts: Facts) -> Iterator[tuple[int, int]]:
    """Yield (version, delta) where a loaded version is to be at another one."""
    is_manual = facts.deployment.deltas.apply == "manual"
    for number in sorted(served):
        loaded = facts.loaded.get(number)
        if loaded is None or _must_load(number, facts):
            continue
        at = loaded.plan.delta
        told = facts.deltas.get(number, NO_DELTA_FACTS)
        held = held_delta(number, facts.intent)
        wanted = wanted_delta(at, told, held=held, is_manual=is_manual)
        if wanted != at:
            yield number, wanted


def _default(chosen: Collection[int], labels: Mapping[str, int], facts: Facts) -> int | None:
    hold = facts.intent.hold
    if hold is None:
        return default_version(chosen, labels, facts.deployment.traffic.default)
    return max((n for n in chosen if n <= hold.version), default=None)


def _kept(served: Collection[int], facts: Facts) -> tuple[int, ...]:
    """Versions that were served last and are in memory as their files are."""
    kept = [
        n
        for n in facts.history
        if n not in served
        and n not in facts.intent.unloads
        and n in facts.loaded
        and facts.present.complete.get(n) == facts.loaded[n].fingerprint
    ]
    return tuple(sorted(kept[: facts.deployment.keep_previous]))
