"""Versions of a model: which were found good, which workers have, which were served before."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from anabranch_server.processes.plans import StatePlan, VersionPlan
from anabranch_server.supervisor.desired import Loaded
from anabranch_server.supervisor.holds import ModelRecord, ServedRecord
from anabranch_server.supervisor.keeper_retained import RetainedPlans
from anabranch_server.supervisor.keeper_work import NO_WORK, Work
from anabranch_server.supervisor.watching_files import SeenVersion

__all__ = ["Past", "Shelf"]

_HISTORY: Final = 16


@dataclass(frozen=True, slots=True)
class Past:
    """What a model served up to now, most recent first.

    Attributes:
        served: versions that answered by default or were served before.
        answered: versions that answered by default, the one that does so now first.
    """

    served: tuple[int, ...] = ()
    answered: tuple[int, ...] = ()


class Shelf:
    """The versions of one model. Belongs to its keeper's task.

    Args:
        adopted: what workers have already.
        record: what was written down last.

    Attributes:
        found: versions that were found good and may be switched to at once.
        in_memory: versions that workers have, as they were when they were switched to.
        past: what was served before.
        applied: when versions in memory were first served, seconds since 1970.
        event_times: newest event of versions that were found once, with their fingerprint.
        examined: newest delta that was there when they were.
        retained: versions as other deltas made them.
    """

    def __init__(self, adopted: StatePlan | None, record: ModelRecord | None) -> None:
        known = () if record is None else record.versions
        fingerprints = {(one.version, one.identity): one.fingerprint for one in known}
        plans = () if adopted is None else adopted.versions
        self.in_memory: Mapping[int, Loaded] = {
            plan.version: Loaded(plan, fingerprints.get((plan.version, plan.identity), ""))
            for plan in plans
        }
        self.found: dict[int, Loaded] = dict(self.in_memory)
        self.past = Past() if record is None else Past(record.history, record.answered)
        self.applied: dict[int, float] = {}
        self.event_times: dict[int, tuple[str, float]] = {}
        self.examined: dict[int, int] = {}
        self.retained = RetainedPlans()
        self._work: dict[int, Work] = {}

    @property
    def plans(self) -> Iterator[VersionPlan]:
        """Every plan that may be switched to, or was."""
        for one in (*self.found.values(), *self.in_memory.values()):
            yield one.plan
        yield from self.retained.plans

    def put(self, version: SeenVersion, plan: VersionPlan, work: Work) -> None:
        """Take a version that was found good."""
        number = version.number
        self.found[number] = Loaded(plan, version.fingerprint)
        self._work[number] = work
        self.examined[number] = version.deltas.newest
        if plan.event_time is not None:
            self.event_times[number] = (version.fingerprint, plan.event_time)

    def move(self, number: int, plan: VersionPlan, work: Work) -> None:
        """Take another delta of a version that was found good before."""
        known = self.found[number]
        self.found[number] = Loaded(plan, known.fingerprint)
        self._work[number] = work
        if plan.event_time is not None and number in self.event_times:
            self.event_times[number] = (self.event_times[number][0], plan.event_time)

    def work(self, number: int) -> Work:
        """Return what has been done for a version that is not switched to yet."""
        return self._work.get(number, NO_WORK)

    def take_work(self, number: int) -> Work:
        """Return, once, what finding a version took."""
        return self._work.pop(number, NO_WORK)

    def moved(self, state: StatePlan | None) -> frozenset[int]:
        """Return the versions that a state has at another delta than workers do."""
        plans = () if state is None else state.versions
        return frozenset(
            plan.version
            for plan in plans
            if (known := self.in_memory.get(plan.version)) is not None
            and known.plan.identity == plan.identity
            and known.plan.delta != plan.delta
        )

    def fresh(self, state: StatePlan) -> list[VersionPlan]:
        """Return the versions of a state that workers do not have yet."""
        have = {number: one.plan for number, one in self.in_memory.items()}
        return [plan for plan in state.versions if have.get(plan.version) != plan]

    def of(self, state: StatePlan | None) -> Mapping[int, Loaded]:
        """Return what a state has in memory."""
        plans = () if state is None else state.versions
        have = {number: one for number, one in self.in_memory.items() if one.plan in plans}
        return {p.version: have.get(p.version) or self.found[p.version] for p in plans}

    def switch(self, state: StatePlan | None, past: Past) -> None:
        """What workers have is that of `state` from now on."""
        before, now_s = self.in_memory, time.time()
        self.in_memory = self.of(state)
        self.retained.switch(
            {number: one.plan for number, one in before.items()},
            {number: one.plan for number, one in self.in_memory.items()},
            0 if state is None else state.retain,
            {number: one.plan for number, one in self.found.items() if number not in before},
        )
        for number in before.keys() - self.in_memory.keys():
            self.found.pop(number, None)
        served = () if state is None else state.served
        self.applied = {
            n: self.applied.get(n, now_s) if before.get(n) == self.in_memory[n] else now_s
            for n in (*served, *self.applied)
            if n in self.in_memory
        }
        self.past = past

    def give_back(self, number: int) -> None:
        """A version could not be switched to: what workers have of it is good still."""
        known = self.in_memory.get(number)
        if known is None:
            self.found.pop(number, None)
        else:
            self.found[number] = known

    def prune(self, there: Collection[int]) -> None:
        """Forget what was found and is not needed.

        Args:
            there: versions that the repository has; of others nothing is known any more.
        """
        self.found = dict(self.in_memory)
        self._work.clear()
        for known in (self.event_times, self.examined):
            for number in known.keys() - there - self.in_memory.keys():
                del known[number]

    def adopt_fingerprints(self, versions: Mapping[int, SeenVersion]) -> None:
        """Take versions that were adopted without a record for what lies there now."""
        self.in_memory = {
            number: (
                Loaded(one.plan, versions[number].fingerprint)
                if not one.fingerprint and number in versions
                else one
            )
            for number, one in self.in_memory.items()
        }
        self.found.update(self.in_memory)

    def past_after(self, old: StatePlan | None, state: StatePlan | None) -> Past:
        """Return what was served before, once `state` follows `old`."""
        if state is None:
            return Past()
        served, answered = self.past.served, self.past.answered
        if state.default is not None:
            others = (n for n in answered if n != state.default)
            answered = (state.default, *others)[:_HISTORY]
        if old is not None:
            leaving = [n for n in served_order(old) if n not in state.served or n == old.default]
            history = [*leaving, *(n for n in served if n not in leaving)]
            served = tuple(n for n in history if n != state.default)[:_HISTORY]
        return Past(served, answered)

    @staticmethod
    def records(in_memory: Mapping[int, Loaded]) -> Iterable[ServedRecord]:
        """Return what to write down of versions in memory."""
        for number, one in sorted(in_memory.items()):
            yield ServedRecord(number, one.plan.delta, one.plan.identity, one.fingerprint)


def served_order(state: StatePlan) -> tuple[int, ...]:
    """Return what a state serves: what answers by default, then the others, newest first."""
    rest = sorted((n for n in state.served if n != state.default), reverse=True)
    return tuple(rest) if state.default is None else (state.default, *rest)
