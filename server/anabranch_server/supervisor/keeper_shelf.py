"""Versions of a model: which were found good, which workers have, which were served before."""

import time
from collections.abc import Iterable, Mapping
from typing import Final

from anabranch_server.processes.messages import Found
from anabranch_server.processes.plans import StatePlan, VersionPlan
from anabranch_server.supervisor.desired import Loaded
from anabranch_server.supervisor.holds import ModelRecord, ServedRecord
from anabranch_server.supervisor.watching_files import SeenVersion

__all__ = ["Shelf"]

_HISTORY: Final = 16


class Shelf:
    """The versions of one model. Belongs to its keeper's task.

    Args:
        adopted: what workers have already.
        record: what was written down last.

    Attributes:
        found: versions that were found good and may be switched to at once.
        in_memory: versions that workers have, as they were when they were switched to.
        history: versions that answered by default or were served before, most recent first.
        applied: when versions in memory were first served, seconds since 1970.
        event_times: newest event of versions that were found once, with their fingerprint.
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
        self.history: tuple[int, ...] = () if record is None else record.history
        self.applied: dict[int, float] = {}
        self.event_times: dict[int, tuple[str, float]] = {}
        self._phase_ms: dict[int, Mapping[str, float]] = {}

    def put(self, version: SeenVersion, found: Found) -> None:
        """Take a version that was found good."""
        number, plan = version.number, found.version
        self.found[number] = Loaded(plan, version.fingerprint)
        self._phase_ms[number] = found.phase_ms
        if plan.event_time is not None:
            self.event_times[number] = (version.fingerprint, plan.event_time)

    def take_phases(self, number: int) -> Mapping[str, float]:
        """Return, once, how long finding a version took."""
        return self._phase_ms.pop(number, {})

    def fresh(self, state: StatePlan) -> list[VersionPlan]:
        """Return the versions of a state that workers do not have yet."""
        have = {number: one.plan for number, one in self.in_memory.items()}
        return [plan for plan in state.versions if have.get(plan.version) != plan]

    def of(self, state: StatePlan | None) -> Mapping[int, Loaded]:
        """Return what a state has in memory."""
        plans = () if state is None else state.versions
        have = {number: one for number, one in self.in_memory.items() if one.plan in plans}
        return {p.version: have.get(p.version) or self.found[p.version] for p in plans}

    def switch(self, state: StatePlan | None, history: tuple[int, ...]) -> None:
        """What workers have is that of `state` from now on."""
        before, now_s = self.in_memory, time.time()
        self.in_memory = self.of(state)
        for number in before.keys() - self.in_memory.keys():
            self.found.pop(number, None)
        served = () if state is None else state.served
        self.applied = {
            n: self.applied.get(n, now_s) if before.get(n) == self.in_memory[n] else now_s
            for n in (*served, *self.applied)
            if n in self.in_memory
        }
        self.history = history

    def give_back(self, number: int) -> None:
        """A version could not be switched to: what workers have of it is good still."""
        known = self.in_memory.get(number)
        if known is None:
            self.found.pop(number, None)
        else:
            self.found[number] = known

    def prune(self) -> None:
        """Forget what was found and is not needed."""
        self.found = dict(self.in_memory)
        self._phase_ms.clear()

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

    def history_after(self, old: StatePlan | None, state: StatePlan) -> tuple[int, ...]:
        """Return who answered before, once `state` follows `old`."""
        if old is None:
            return self.history
        leaving = [n for n in served_order(old) if n not in state.served or n == old.default]
        history = [*leaving, *(n for n in self.history if n not in leaving)]
        return tuple(n for n in history if n != state.default)[:_HISTORY]

    @staticmethod
    def records(in_memory: Mapping[int, Loaded]) -> Iterable[ServedRecord]:
        """Return what to write down of versions in memory."""
        for number, one in sorted(in_memory.items()):
            yield ServedRecord(number, one.plan.delta, one.plan.identity, one.fingerprint)


def served_order(state: StatePlan) -> tuple[int, ...]:
    """Return what a state serves: what answers by default, then the others, newest first."""
    rest = sorted((n for n in state.served if n != state.default), reverse=True)
    return tuple(rest) if state.default is None else (state.default, *rest)
