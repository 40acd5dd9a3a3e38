"""What a worker has of one model: prepared states, their versions, and the groups that run them.

Invariants: a version that two states name is one object; a version is referred to from here as
long as a state that names it is kept, and not a moment longer.
"""

import asyncio
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_server.processes.plans import (
    GenerationPlan,
    GroupPlan,
    QueuePlan,
    StatePlan,
    VersionPlan,
)
from anabranch_server.worker.generations import Generations
from anabranch_server.worker.likeness import is_same, shares_graph

__all__ = ["PreparedState", "Shelf"]

MakeGroup = Callable[[GroupPlan, QueuePlan], SessionGroup]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedState:
    """A state that can become current at any moment.

    Attributes:
        plan: what it is; None when the model is gone.
        versions: everything that the plan has in memory, by number.
    """

    plan: StatePlan | None
    versions: Mapping[int, ServedVersion]

    @property
    def generations(self) -> Iterator[int]:
        """Numbers of the generations that it reads."""
        return (one.number for one in (() if self.plan is None else self.plan.generations))

    def find(
        self, group: GroupPlan, version: VersionPlan, rows: GenerationPlan | None
    ) -> ServedVersion | None:
        """Return the very version, where this state has it in that group, with these rows."""
        if self.plan is None or self.plan.group != group:
            return None
        for had in self.plan.versions:
            if is_same(had, self.plan.generation(had.version), version, rows):
                return self.versions[had.version]
        return None

    def like(
        self, group: GroupPlan, version: VersionPlan
    ) -> tuple[VersionPlan, ServedVersion] | None:
        """Return a version on whose engine in that group another one runs too, with its plan."""
        if self.plan is None or self.plan.group != group:
            return None
        for had in self.plan.versions:
            if shares_graph(had, version):
                return had, self.versions[had.version]
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Leaving:
    """Versions that no state names any more since some epoch became current.

    Attributes:
        before: the epoch that was current until then.
        epoch: the one that is since.
        versions: those that may still be in use.
        numbers: all that left.
        generations: numbers of those that they read.
    """

    before: int
    epoch: int
    versions: tuple[weakref.ref[ServedVersion], ...]
    numbers: frozenset[int]
    generations: frozenset[int]


class Shelf:
    """Belongs to the event loop.

    Args:
        slot: index of the model's shared word.
        make_group: makes a session group of the model.
        generations: of the model.

    Attributes:
        slot: as given.
        generations: as given.
        states: epoch -> prepared state, rising.
        current: newest epoch that was seen in the shared word.
        asked: how many states are being prepared, or wait for that; whoever prepares counts itself.
        preparing: held by the one that is prepared.
    """

    def __init__(self, slot: int, make_group: MakeGroup, generations: Generations) -> None:
        self.slot = slot
        self.generations = generations
        self.states: dict[int, PreparedState] = {}
        self.current = 0
        self.asked = 0
        self.preparing = asyncio.Lock()
        self._make_group = make_group
        self._groups: dict[GroupPlan, SessionGroup] = {}
        self._running: dict[GroupPlan, list[weakref.ref[ServedVersion]]] = {}
        self._leaving: list[_Leaving] = []

    # --- preparing ------------------------------------------------------------------------------

    def find(
        self, group: GroupPlan, version: VersionPlan, rows: GenerationPlan | None
    ) -> ServedVersion | None:
        """Return the version, if a state has it in this group; see `PreparedState.find`."""
        for state in self.states.values():
            served = state.find(group, version, rows)
            if served is not None:
                return served
        return None

    def like(
        self, group: GroupPlan, version: VersionPlan
    ) -> tuple[VersionPlan, ServedVersion] | None:
        """Return what shares its engine with a version, of the newest state that has such a one."""
        for state in reversed(self.states.values()):
            like = state.like(group, version)
            if like is not None:
                return like
        return None

    def group(self, plan: GroupPlan, queue: QueuePlan) -> SessionGroup:
        """Return the group of a plan, made on first use.

        Raises:
            AnabranchError: there is no such backend here.
        """
        group = self._groups.get(plan)
        if group is None:
            group = self._groups[plan] = self._make_group(plan, queue)
        return group

    def built(self, plan: GroupPlan, served: ServedVersion) -> None:
        """Note that `served` runs in the group of `plan`; it keeps the group open."""
        self._running.setdefault(plan, []).append(weakref.ref(served))

    def keep(self, epoch: int, state: PreparedState) -> None:
        """Keep `state` until an epoch above it is current."""
        self.states[epoch] = state
        self.states = dict(sorted(self.states.items()))

    def drop(self, epoch: int) -> Collection[int]:
        """Drop a state that was never current; return the version numbers that it had."""
        state = self.states.pop(epoch, None)
        return () if state is None else state.versions.keys()

    # --- what passes ----------------------------------------------------------------------------

    @property
    def groups(self) -> tuple[SessionGroup, ...]:
        """Groups that run something, or are about to."""
        return tuple(self._groups.values())

    @property
    def epochs(self) -> tuple[int, ...]:
        """Epochs that are prepared, or that requests may still read, rising."""
        return tuple(sorted({*self.states, *(leaving.before for leaving in self._leaving)}))

    @property
    def is_moving(self) -> bool:
        """Whether the word may move on to a prepared state, or a version is about to leave."""
        return bool(self._leaving) or any(epoch > self.current for epoch in self.states)

    @property
    def is_empty(self) -> bool:
        """Whether the model is gone, with all that ran it."""
        return not (
            self._leaving
            or self._groups
            or self.asked
            or any(state.plan is not None for state in self.states.values())
            or any(epoch > self.current for epoch in self.states)
        )

    def turn(self, epoch: int) -> PreparedState | None:
        """Note that `epoch` is current: drop every state before it and return its own."""
        before, self.current = self.current, epoch
        passed = [self.states.pop(one) for one in list(self.states) if one < epoch]
        kept = {id(one) for state in self.states.values() for one in state.versions.values()}
        gone = {
            id(served): served
            for state in passed
            for served in state.versions.values()
            if id(served) not in kept
        }
        self._leaving.append(
            _Leaving(
                before,
                epoch,
                tuple(weakref.ref(served) for served in gone.values()),
                frozenset(served.snapshot.version for served in gone.values()),
                frozenset(number for state in passed for number in state.generations),
            )
        )
        return self.states.get(epoch)

    def left(self) -> Iterator[tuple[int, frozenset[int]]]:
        """Yield the epochs before which no request reads any more, rising.

        Yields:
            The epoch, and the version numbers that left with the states before it.
        """
        while self._leaving:
            first = self._leaving[0]
            if any(version() is not None for version in first.versions):
                return
            self._leaving.pop(0)
            yield first.epoch, first.numbers

    def unmap(self) -> None:
        """Let go of generations that no state names any more, unless one is being prepared."""
        if not self.asked:
            named = {number for state in self.states.values() for number in state.generations}
            left = {number for leaving in self._leaving for number in leaving.generations}
            self.generations.keep_only(named | left)

    def has_version(self, number: int) -> bool:
        """Whether any version of this number is in memory."""
        return any(number in state.versions for state in self.states.values()) or any(
            number in leaving.numbers for leaving in self._leaving
        )

    def take_empty_groups(self) -> list[SessionGroup]:
        """Give up the groups that run nothing; they are the caller's to close."""
        if self.asked:
            return []
        named = {
            state.plan.group
            for state in self.states.values()
            if state.plan is not None and state.plan.versions
        }
        empty = []
        for plan in list(self._groups):
            running = [one for one in self._running.get(plan, ()) if one() is not None]
            self._running[plan] = running
            if plan not in named and not running:
                empty.append(self._groups.pop(plan))
                del self._running[plan]
        return empty
