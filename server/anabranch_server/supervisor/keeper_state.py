"""One model brought to what it should serve, step by step: look, load, switch, look again."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec

from anabranch_model_store.serving_yaml import Deployment
from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor.desired import (
    Desired,
    Facts,
    Intent,
    Present,
    desired,
    held_anew,
    held_delta,
    ready_first,
)
from anabranch_server.supervisor.keeper_counts import ReloadKind
from anabranch_server.supervisor.keeper_deltas import DeltaSteps
from anabranch_server.supervisor.keeper_deployment import DeploymentFile
from anabranch_server.supervisor.keeper_loads import Loads, Wish
from anabranch_server.supervisor.keeper_mending import Mending
from anabranch_server.supervisor.keeper_plans import group_plan, state_plan
from anabranch_server.supervisor.keeper_reports import ReloadReports
from anabranch_server.supervisor.keeper_shelf import served_order
from anabranch_server.supervisor.keeper_switches import Switches
from anabranch_server.supervisor.keeper_waking import GAVE_WAY, Waking
from anabranch_server.supervisor.surroundings import Surroundings
from anabranch_server.supervisor.watching import SeenModel
from anabranch_wire.errors import AnabranchError, Conflict, NotFound

__all__ = ["KeptModel"]

_LOOK_S: Final = 1.0
"""While a version is looked at, deltas that may be tried again wait for at least so long."""
_ROUNDS: Final = 2
"""How often deltas of a version are asked for before what was reached is switched to."""


class KeptModel:
    """What is known of one model, and the steps that change it.

    Owned by its keeper's task; others read its attributes, on the event loop.

    Args:
        name: of the model.
        around: what it works with.
        adopted: what workers serve already.
        is_named: whether it was asked for by name, so that it is a model even without a folder.
        waking: what wakes its keeper.

    Attributes:
        name: of the model.
        seen: what the repository has; None when it has no such model.
        shelf: its versions.
        failures: what could not be served.
        delta_faults: deltas that could not be applied.
        loads: has its versions looked at.
    """

    def __init__(
        self,
        name: str,
        around: Surroundings,
        adopted: StatePlan | None,
        waking: Waking,
        *,
        is_named: bool = False,
    ) -> None:
        self.name = name
        self._waking = waking
        self.seen: SeenModel | None = None
        self._around = around
        self._is_named = is_named
        self._file = DeploymentFile(around.workers, around.cores)
        self._reports = ReloadReports(name, around.counts, around.gap_grace_s)
        self._switches = Switches(name, around, self._reports, adopted)
        self._mending = Mending()
        self._is_short = False  # of deltas that are there, and that nothing is in the way of
        self.shelf = self._switches.shelf
        self.failures = self._reports.failures
        self.delta_faults = self._reports.delta_faults
        self._deltas = DeltaSteps(name, around, self._reports, self._switches.recorded)
        self.loads = Loads(name, around, self._reports, self._switches, self._deltas)
        self._ahead = Loads(name, around, self._reports, self._switches, self._deltas)

    @property
    def deployment(self) -> Deployment | None:
        """The last serving.yaml that could be used."""
        return self._file.current

    @property
    def state(self) -> StatePlan | None:
        """What workers serve; None before the first switch, and when the model is gone."""
        return self._switches.state

    @property
    def intent(self) -> Intent:
        """What people asked for."""
        return self._switches.intent

    @property
    def leaving(self) -> frozenset[int]:
        """Versions that go with the switch at work."""
        return self._switches.leaving

    @property
    def loading(self) -> int | None:
        """Version that is being looked at."""
        return self.loads.current

    @property
    def is_wanted(self) -> bool:
        """Whether there is such a model, in the repository or by name."""
        return self.seen is not None or self._is_named

    def wake_at_s(self, since_s: float) -> float | None:
        """Return when something may be tried again by itself, on the event loop's clock.

        Args:
            since_s: when `converge` began last; what was due by then has had its turn.
        """
        times = [
            _now_s() if self._is_short else None,
            self.failures.next_retry_s(since_s),
            self.delta_faults.wake_at_s(_now_s(), since_s),
            self._switches.next_retry_s(since_s),
            self._mending.next_s if self._around.switching.lacks(self.name) else None,
        ]
        return min((at for at in times if at is not None), default=None)

    def facts(self, intent: Intent) -> Facts:
        """Return all that the choice depends on."""
        seen, state, shelf = self.seen, self.state, self.shelf
        present = Present()
        if seen is not None:
            complete = {number: one.fingerprint for number, one in seen.versions.items()}
            present = Present(complete, seen.changing)
        return Facts(
            present=present,
            deployment=self.deployment or Deployment(),
            intent=intent,
            loaded=shelf.found,
            served=() if state is None else state.served,
            default=None if state is None else state.default,
            history=(*(() if state is None else served_order(state)), *shelf.past.served),
            broken=self.failures.broken(_now_s()),
            event_times=shelf.event_times,
            deltas=self._deltas.facts(seen, present.complete),
            examined=shelf.examined,
        )

    def accept_deltas(self) -> None:
        """Have all deltas applied that are there now, also where they wait to be asked for."""
        self._deltas.accept(self.seen)

    # --- steps ----------------------------------------------------------------------------------

    async def converge(
        self,
        intent: Intent | None = None,
        kind: ReloadKind = "version",
        *,
        is_strict: bool = False,
    ) -> AnabranchError | None:
        """Load and switch until the model serves what it should.

        Args:
            intent: what people ask for from now on; it is kept once it is served.
            kind: of what is switched to, for logs and metrics.
            is_strict: whether the first failed switch is the end; else what failed makes room for
                the next best.

        Returns:
            The first thing that went wrong, though the rest may have been done; `GAVE_WAY` where
            somebody was in a hurry while a loader was at work, and the rest was left.
        """
        first: AnabranchError | None = None
        is_lacking = self.state is not None and self._around.switching.lacks(self.name)
        if is_lacking and not self._waking.is_urgent:
            await self._mend()
        await self._deltas.look_at_files(self.seen)
        rounds: Counter[int] = Counter()
        self._is_short = False
        while True:
            wish = intent or self.intent
            error, is_done = await self._step(wish, kind, rounds, is_strict=is_strict)
            if error is GAVE_WAY:
                return error
            first = first or error
            if is_done:
                self.shelf.prune(() if self.seen is None else self.seen.versions)
                self.delta_faults.keep(self._concerned())
                return first

    def _concerned(self) -> set[int]:
        """Return the versions whose deltas matter: those in memory, and what may come."""
        default = 0 if self.state is None else self.state.default or 0
        there = () if self.seen is None else self.seen.versions
        return {*self.shelf.in_memory, *(n for n in there if n > default)}

    async def _step(
        self,
        intent: Intent,
        kind: ReloadKind,
        rounds: Counter[int],
        *,
        is_strict: bool,
    ) -> tuple[AnabranchError | None, bool]:
        """Take one step; returns what went wrong, and whether none is left.

        `rounds` counts, of each version, how often deltas were asked for since this began.
        """
        fault = self._read_deployment()
        if not self.is_wanted:
            if self.state is None:
                return None, True
            return await self._switches.switch(None, self.intent, kind), True
        deployment = self.deployment
        if deployment is None:
            if self.state is not None:
                return fault, True
            wanted, deployment = Desired(), Deployment()
        else:
            facts = self.facts(intent)
            wanted = desired(facts)
            fault = self._reports.unserved(wanted, facts) or fault
            wanted = ready_first(wanted, facts, is_asked=is_strict)
        if wanted.load and intent is self.intent and self._switches.is_waiting(_now_s()):
            return fault, True
        coming = {n: to for n, to in wanted.deltas.items() if rounds[n] < _ROUNDS}
        if self._waking.is_urgent:
            coming = held_anew(coming, intent, self.intent)
        if wanted.load:
            ahead = {} if is_strict else {n: to for n, to in coming.items() if not rounds[n]}
            if not (served := self._of_served(ahead)):
                number = wanted.load[0]
                error = await self._load(number, self._wish(held_delta(number, intent)))
                return error or fault, False
            rounds.update(ahead.keys())
            return await self._switch_ahead(served) or fault, False
        if coming:
            number = min(coming)
            rounds[number] += 1
            error = await self._move(number, coming[number], intent)
            is_held = number == (None if intent.hold is None else intent.hold.version)
            is_missed = self.shelf.found[number].plan.delta != coming[number]
            if is_strict and is_held and is_missed:
                missed = f"version {number} cannot be brought to delta {coming[number]}"
                return error or Conflict(missed), True
            return error or fault, False
        group = group_plan(deployment, self._around.workers, self._around.cores)
        self._is_short = bool(wanted.deltas)
        state = state_plan(wanted, deployment, self.shelf.found, group)
        if state == self.state:
            return await self._switches.keep_intent(intent) or fault, True
        is_waiting = self._switches.next_retry_s(_now_s()) is not None
        if not is_strict and is_waiting and self._switches.is_refused(state):
            return fault, True
        error = await self._switches.switch(state, intent, kind)
        is_over = is_strict or self._switches.is_refused(state)
        return error or fault, error is not None and is_over

    async def _mend(self) -> None:
        """Load once more what is served, and have it prepared anew where it was missed.

        A worker could not build it, as when the cache folder has been deleted; what can be loaded
        lies there again afterwards. Where only its rows are a former supervisor's, they are made
        anew from what was loaded before.
        """
        now_s, switching, seen = _now_s(), self._around.switching, self.seen
        if not self._mending.is_due(now_s):
            switching.give_up(self.name)
            return
        error: AnabranchError | None = None
        if self.state is not None and switching.is_orphaned(self.name):
            await self._switches.switch(self.state, self.intent, "config")
            if not switching.lacks(self.name):
                return
        for number, one in self.shelf.in_memory.items():
            if seen is not None and number in seen.versions:
                wish = self._wish(one.plan.delta, is_in_memory=True, is_exact=True)
                obtaining = self.loads.obtain(number, seen, wish)
                fault = await self._waking.unless_urged(obtaining, self._switches.turn)
                if fault is GAVE_WAY:
                    return
                error = fault or error
        if error is None and self.state is not None:
            versions = tuple(self.shelf.found[n].plan for n in sorted(self.shelf.in_memory))
            state = msgspec.structs.replace(self.state, versions=versions)
            error = await self._switches.switch(state, self.intent, "config")
        if error is None:
            self._mending.succeeded()
            self.failures.forget()  # that worker may have been why something was refused
        else:
            self._mending.failed(now_s)
            switching.give_up(self.name)

    async def obtain(self, number: int, delta: int | None) -> AnabranchError | None:
        """Have a complete version looked at; returns why it cannot be served.

        Args:
            number: of the version.
            delta: it has to be at that one; None is as far as deltas lead.
        """
        return await self._load(number, self._wish(delta, is_exact=delta is not None))

    async def _load(self, number: int, wish: Wish) -> AnabranchError | None:
        """Have a version looked at; returns why it cannot be served, or that it gave way.

        That may take minutes: what is served goes on getting its deltas meanwhile.
        """
        return await self._waking.unless_urged(
            self.loads.obtain(number, self.seen, wish),
            self._switches.turn,
            self._follow_deltas,
            self._next_look_s,
        )

    def _next_look_s(self) -> float | None:
        """Return in how many seconds deltas may be tried again while a version is looked at."""
        at_s, now_s = self.delta_faults.wake_at_s(_now_s()), _now_s()
        return None if at_s is None else max(_LOOK_S, at_s - now_s)

    async def _follow_deltas(self) -> None:
        """Bring what is served to its newest deltas, as long as serving.yaml is what was read."""
        if self._file.differs(self.seen):
            return
        await self._deltas.look_at_files(self.seen)
        for _ in range(_ROUNDS):
            deltas = self._of_served(desired(self.facts(self.intent)).deltas)
            if not deltas:
                return
            await self._switch_ahead(deltas)

    def _of_served(self, deltas: Mapping[int, int]) -> dict[int, int]:
        served = () if self.state is None else self.state.served
        return {n: to for n, to in deltas.items() if n in served and n in self.shelf.in_memory}

    async def _move(self, number: int, delta: int, intent: Intent) -> AnabranchError | None:
        """Bring a version to another delta, as far as that can be had; returns what is amiss."""
        is_in_memory = number in self.shelf.in_memory
        held = held_delta(number, intent)
        wish = self._wish(held, is_in_memory=is_in_memory, is_exact=held is not None)
        moving = self.loads.move(number, delta, self.seen, wish)
        return await self._waking.unless_urged(moving, self._switches.turn)

    async def _switch_ahead(self, deltas: Mapping[int, int]) -> AnabranchError | None:
        """Bring what is served to its newest deltas before, and while, something else is done."""
        error: AnabranchError | None = None
        for number, delta in deltas.items():
            held = held_delta(number, self.intent)
            wish = replace(
                self._wish(held, is_in_memory=True, is_exact=held is not None), may_obtain=False
            )
            moving = self._ahead.move(number, delta, self.seen, wish)
            error = await self._waking.unless_urged(moving, self._switches.turn) or error
            if error is GAVE_WAY:
                return error
        return await self._switches.switch_to_found(self.intent) or error

    def _wish(
        self, delta: int | None, *, is_in_memory: bool = False, is_exact: bool = False
    ) -> Wish:
        deployment = self.deployment or Deployment()
        return Wish(
            deployment.memory.max_bytes,
            is_in_memory=is_in_memory,
            delta=delta,
            is_exact=is_exact,
            is_manual=deployment.deltas.apply == "manual",
        )

    def _read_deployment(self) -> AnabranchError | None:
        """Read serving.yaml where it has changed; what was read before stays where it is bad."""
        seen = self.seen
        if not self._file.notice(seen):
            return None
        if seen is None:
            if self._is_named:
                self._reports.failed(None, NotFound("the repository has no such model"))
            return None
        self.shelf.adopt_fingerprints(seen.versions)
        self.failures.forget()  # what could not be served may be now
        try:
            self._file.read(seen)
        except AnabranchError as error:
            self._reports.failed(None, error, kind="config")
            return error
        return None


def _now_s() -> float:
    return asyncio.get_running_loop().time()
