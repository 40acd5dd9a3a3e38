"""What workers serve of one model, and what people asked for: changed, and written down, together.

Invariant: what a restart finds in the records is what was last decided to be served.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from anabranch_server.load_failures import failure_reason
from anabranch_server.processes.plans import StatePlan, VersionPlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.desired import Intent, Loaded
from anabranch_server.supervisor.holds import ModelRecord
from anabranch_server.supervisor.keeper_counts import ReloadKind
from anabranch_server.supervisor.keeper_failures import of_version
from anabranch_server.supervisor.keeper_reports import ReloadReports
from anabranch_server.supervisor.keeper_shelf import Past, Shelf
from anabranch_server.supervisor.keeper_work import Work
from anabranch_server.supervisor.surroundings import Surroundings
from anabranch_wire.errors import AnabranchError, TooLarge, Unavailable

__all__ = ["Switches"]

_AGAIN_S: Final = 10.0
"""When a switch is tried again that failed for a reason which may pass."""


class Switches:
    """Switches one model from state to state. Belongs to its keeper's task.

    Args:
        name: of the model.
        around: what it works with.
        reports: of the model.
        adopted: what workers serve already.

    Attributes:
        state: what workers serve; None before the first switch, and when the model is gone.
        intent: what people asked for.
        shelf: the model's versions.
        leaving: versions that go with the switch at work.
        recorded: version -> delta that it was at when that was written down before this began.
        turn: to be held from the look at `state` to the switch that follows from it, where a load
            and deltas of what is served are at work beside each other.
    """

    def __init__(
        self, name: str, around: Surroundings, reports: ReloadReports, adopted: StatePlan | None
    ) -> None:
        record = around.records.read(name)
        is_ours = record is not None and record.launch == around.launch
        self.state = adopted
        self.intent = _intent(record, is_ours=is_ours)
        self.shelf = Shelf(adopted, record)
        self.recorded = {} if record is None else {n.version: n.delta for n in record.versions}
        self.leaving: frozenset[int] = frozenset()
        self.turn = asyncio.Lock()
        self._name = name
        self._around = around
        self._reports = reports
        self._refused: tuple[StatePlan | None, float] | None = None
        self._epoch = record.epoch if record is not None and is_ours else 0

    def is_refused(self, state: StatePlan) -> bool:
        """Whether it is the state itself that could not be switched to last."""
        return self._refused is not None and self._refused[0] == state

    def next_retry_s(self, since_s: float) -> float | None:
        """Return when that state may be tried again by itself; None where that had passed before.

        Args:
            since_s: on the event loop's clock, as what is returned.
        """
        refused = self._refused
        return None if refused is None or refused[1] <= since_s else refused[1]

    def is_waiting(self, now_s: float) -> bool:
        """Whether a state that was refused is to be tried again later, which may pass."""
        return self._refused is not None and now_s < self._refused[1] < float("inf")

    async def switch_to_found(self, intent: Intent) -> AnabranchError | None:
        """Have what is served at the deltas that were found last; returns why that failed."""
        async with self.turn:
            state = self.state
            if state is None:
                return None
            versions = tuple(self._found(plan) for plan in state.versions)
            new = msgspec.structs.replace(state, versions=versions)
            if new == state or (self.is_refused(new) and self.is_waiting(_now_s())):
                return None
            return await self.switch(new, intent, "version")

    async def switch(
        self, state: StatePlan | None, intent: Intent, kind: ReloadKind
    ) -> AnabranchError | None:
        """Make `state` what is served; returns why that failed.

        Args:
            state: what to serve; None when the model is gone.
            intent: what people ask for, kept with the state.
            kind: of what is switched to, for logs and metrics.
        """
        shelf, old = self.shelf, self.state
        fresh = [] if state is None else shelf.fresh(state)
        moved = shelf.moved(state)
        in_memory = shelf.of(state)
        past = shelf.past_after(old, state)
        self.leaving = frozenset(shelf.in_memory.keys() - in_memory.keys())
        decide = self._deciding(intent, past, in_memory)
        begun_s = time.monotonic()
        try:
            await self._around.switching.switch(self._name, state, decide)
        except AnabranchError as error:
            return self._not_switched(state, fresh, moved, error)
        finally:
            self.leaving = frozenset()
        self.state, self.intent, self._refused = state, intent, None
        shelf.switch(state, past)
        for plan in fresh:
            self._reports.delta_faults.passed(plan.version, plan.delta)
            self._reports.failures.forget(plan.version)
        if state is None:
            self._reports.gone()
        else:
            switching_ms = round((time.monotonic() - begun_s) * 1e3, 1)
            self._switched(old, state, fresh, moved, kind, switching_ms)
        return None

    def _found(self, plan: VersionPlan) -> VersionPlan:
        """Return a version as it was found last, where it is the same but for its delta."""
        found = self.shelf.found.get(plan.version)
        return plan if found is None or found.plan.identity != plan.identity else found.plan

    def _not_switched(
        self,
        state: StatePlan | None,
        fresh: list[VersionPlan],
        moved: frozenset[int],
        error: AnabranchError,
    ) -> AnabranchError:
        """Hold it against what workers lack, or against the state; return it.

        What they lack is the newest version, or, where they have them all, deltas: whose fault it
        is of many nobody knows, and what follows may make up for it, so they are tried again.
        """
        if isinstance(error, NoRoom):
            full = [plan for plan in fresh if error.version in (None, plan.version) and plan.delta]
            for plan in full:
                self._hold_against_deltas(plan, error)
            if full:
                return error
        new = [plan for plan in fresh if plan.version not in moved]
        if not new and moved:
            for plan in fresh:
                self._hold_against_deltas(plan, error)
            return error
        if new and not isinstance(error, Unavailable):
            number = max(plan.version for plan in new)
            self._reports.failed(number, error, self.shelf.found[number].fingerprint)
            self.shelf.give_back(number)
            return of_version(number, error)
        again_s = _AGAIN_S if isinstance(error, Unavailable) else float("inf")
        self._refused = (state, _now_s() + again_s)
        self._reports.failed(None, error)
        return error

    def _hold_against_deltas(self, plan: VersionPlan, error: AnabranchError) -> None:
        """Deltas could not be switched to: what workers have of the version is good still.

        Where they have none it comes up at what was served last, or at less. The rows of how many
        deltas do not fit is found by halves.
        """
        known = self.shelf.in_memory.get(plan.version)
        recorded = self.recorded.get(plan.version, plan.delta)
        if known is None and recorded < plan.delta:
            first = recorded + 1
        else:
            before = 0 if known is None else known.plan.delta
            first = min(before + 1, plan.delta)
            if isinstance(error, NoRoom) and before < plan.delta:
                first = (before + plan.delta) // 2 + 1
        is_full = isinstance(error, NoRoom | TooLarge)
        self._reports.delta_failed(
            plan.version,
            first,
            plan.delta,
            error,
            "store_full" if is_full else failure_reason(error),
            _now_s(),
            passes=True,
        )
        self.shelf.retained.forget(plan.version)
        self.shelf.give_back(plan.version)

    def _switched(
        self,
        old: StatePlan | None,
        state: StatePlan,
        fresh: list[VersionPlan],
        moved: frozenset[int],
        kind: ReloadKind,
        switching_ms: float,
    ) -> None:
        """Say and count what is served now."""
        shelf, switching = self.shelf, {"switching": switching_ms}
        new = {plan.version: plan for plan in fresh if plan.version in state.served}
        if kind == "rollback" and state.default is not None:
            new[state.default] = shelf.in_memory[state.default].plan
        for number, plan in sorted(new.items()):
            of = "delta" if kind == "version" and number in moved else kind
            work = shelf.take_work(number)
            is_news = plan in fresh and (of != "delta" or work.is_news)
            if is_news and plan.published is not None and self._around.is_serving():
                self._reports.published(of, time.time() - plan.published)
            self._reports.served(of, number, plan, work.with_phases(switching))
        if not new and (state.versions or (old is not None and old.versions)):
            default = state.default
            answering = None if default is None else shelf.in_memory[default].plan
            self._reports.served("config", default, answering, Work(switching))

    def _deciding(
        self, intent: Intent, past: Past, in_memory: Mapping[int, Loaded]
    ) -> Callable[[int], Awaitable[None]]:
        """Return what makes a decision durable, given its epoch."""

        async def decide(epoch: int) -> None:
            record = ModelRecord(
                model=self._name,
                hold=intent.hold,
                labels=dict(intent.labels),
                launch=self._around.launch,
                epoch=epoch,
                committed=time.time(),
                versions=tuple(Shelf.records(in_memory)),
                history=past.served,
                answered=past.answered,
                loads=tuple(sorted(intent.loads)),
                unloads=tuple(sorted(intent.unloads)),
                unloaded=intent.unloaded,
            )
            await asyncio.to_thread(self._around.records.write, record)
            self._epoch = epoch

        return decide

    async def keep_intent(self, intent: Intent) -> AnabranchError | None:
        """Remember what people asked for where nothing has to be switched for it."""
        if intent == self.intent:
            return None
        try:
            await self._deciding(intent, self.shelf.past, self.shelf.in_memory)(self._epoch)
        except AnabranchError as error:
            self._reports.failed(None, error)
            return error
        self.intent = intent
        return None


def _intent(record: ModelRecord | None, *, is_ours: bool) -> Intent:
    """What people asked for; loads and unloads only as long as the launcher lives."""
    if record is None:
        return Intent()
    if not is_ours:
        return Intent(record.hold, record.labels)
    return Intent(
        record.hold,
        record.labels,
        frozenset(record.loads),
        frozenset(record.unloads),
        record.unloaded,
    )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
