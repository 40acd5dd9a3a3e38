"""One model brought to what it should serve, step by step: look, load, switch, look again."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from anabranch_model_store.memory import Demand, must_give_way
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.supported import check_deployment
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_server.load_failures import FailureReason, failure_reason
from anabranch_server.processes.messages import Found, LoadVersion, Progress
from anabranch_server.processes.plans import StatePlan, VersionPlan
from anabranch_server.supervisor.desired import (
    Desired,
    Facts,
    Intent,
    Loaded,
    Present,
    desired,
    namers,
)
from anabranch_server.supervisor.holds import ModelRecord, Records
from anabranch_server.supervisor.keeper_counts import ReloadCounts, ReloadKind
from anabranch_server.supervisor.keeper_failures import Failures, of_version
from anabranch_server.supervisor.keeper_mending import Mending
from anabranch_server.supervisor.keeper_plans import group_plan, state_plan
from anabranch_server.supervisor.keeper_reports import ReloadReports
from anabranch_server.supervisor.keeper_shelf import Past, Shelf, served_order
from anabranch_server.supervisor.switching import Switching
from anabranch_server.supervisor.watching import SeenModel
from anabranch_server.supervisor.watching_files import SeenVersion
from anabranch_wire.errors import AnabranchError, Conflict, NotFound, Unavailable

__all__ = ["KeptModel", "Surroundings", "VersionLoader"]

_AGAIN_S: Final = 10.0
"""When a switch is tried again that failed for a reason which may pass."""


class VersionLoader(Protocol):
    """Has versions looked at; see `LoaderLink`."""

    async def load(self, request: LoadVersion, on_progress: Callable[[Progress], None]) -> Found:
        """Return what was found, or raise why it cannot be served."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every model's keeper works with.

    Attributes:
        switching: makes states current.
        loader: looks at versions.
        records: what survives a restart.
        counts: of what happened.
        launch: name of the running launcher.
        workers: worker processes.
        cores: executors of a worker where a deployment names no number.
        available_bytes: memory that the machine has left; None where it is not known.
        is_serving: whether requests are being answered, so that loading must not disturb.
        in_use: graph files of all models that workers may be told of; filled in by `Keeping`.
    """

    switching: Switching
    loader: VersionLoader
    records: Records
    counts: ReloadCounts
    launch: str
    workers: int
    cores: int
    available_bytes: Callable[[], int | None]
    is_serving: Callable[[], bool]
    in_use: Callable[[], tuple[str, ...]] = tuple


class KeptModel:
    """What is known of one model, and the steps that change it.

    Owned by its keeper's task; others read its attributes, on the event loop.

    Args:
        name: of the model.
        around: what it works with.
        adopted: what workers serve already.
        is_named: whether it was asked for by name, so that it is a model even without a folder.

    Attributes:
        name: of the model.
        seen: what the repository has; None when it has no such model.
        deployment: the last serving.yaml that could be used.
        intent: what people asked for.
        state: what workers serve; None before the first switch.
        shelf: its versions.
        failures: what could not be served.
        loading: version that is being looked at.
        leaving: versions that go with the switch at work.
        on_progress: told how far loading is.
    """

    def __init__(
        self, name: str, around: Surroundings, adopted: StatePlan | None, *, is_named: bool = False
    ) -> None:
        self.name = name
        self.seen: SeenModel | None = None
        self.deployment: Deployment | None = None
        self.state = adopted
        self.failures = Failures()
        self.loading: int | None = None
        self.leaving: frozenset[int] = frozenset()
        self.on_progress: Callable[[Progress], None] = lambda progress: None
        self._around = around
        self._reports = ReloadReports(name, around.counts)
        self._is_named = is_named
        self._settings: str | None = None
        self._refused: tuple[StatePlan | None, float] | None = None
        self._mending = Mending()
        self._said: tuple[object, ...] = ()
        record = around.records.read(name)
        is_ours = record is not None and record.launch == around.launch
        self.shelf = Shelf(adopted, record)
        self.intent = _intent(record, is_ours=is_ours)
        self._epoch = record.epoch if record is not None and is_ours else 0

    @property
    def is_wanted(self) -> bool:
        """Whether there is such a model, in the repository or by name."""
        return self.seen is not None or self._is_named

    def wake_at_s(self) -> float | None:
        """Return when something may be tried again by itself, on the event loop's clock."""
        times = [
            self.failures.next_retry_s(),
            None if self._refused is None else self._refused[1],
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
        )

    # --- steps ----------------------------------------------------------------------------------

    async def converge(
        self, intent: Intent | None = None, kind: ReloadKind = "version", *, is_strict: bool = False
    ) -> AnabranchError | None:
        """Load and switch until the model serves what it should.

        Args:
            intent: what people ask for from now on; it is kept once it is served.
            kind: of what is switched to, for logs and metrics.
            is_strict: whether the first failed switch is the end; else what failed makes room for
                the next best.

        Returns:
            The first thing that went wrong, though the rest may have been done.
        """
        first: AnabranchError | None = None
        if self.state is not None and self._around.switching.lacks(self.name):
            await self._mend()
        while True:
            error, is_done = await self._step(intent or self.intent, kind, is_strict=is_strict)
            first = first or error
            if is_done:
                self.shelf.prune()
                return first

    async def _step(
        self, intent: Intent, kind: ReloadKind, *, is_strict: bool
    ) -> tuple[AnabranchError | None, bool]:
        """Take one step; returns what went wrong, and whether none is left."""
        fault = self._read_deployment()
        if not self.is_wanted:
            if self.state is None:
                return None, True
            return await self._switch(None, self.intent, kind), True
        deployment = self.deployment
        if deployment is None:
            if self.state is not None:
                return fault, True
            wanted, deployment = Desired(), Deployment()
        else:
            facts = self.facts(intent)
            wanted = desired(facts)
            fault = self._say(wanted, facts) or fault
        if wanted.load:
            return await self.obtain(wanted.load[0]) or fault, False
        group = group_plan(deployment, self._around.workers, self._around.cores)
        state = state_plan(wanted, deployment, self.shelf.found, group)
        if state == self.state:
            return await self._keep_intent(intent) or fault, True
        if self._refused is not None and not is_strict:
            refused, again_at_s = self._refused
            if refused == state and again_at_s > _now_s():
                return fault, True
        error = await self._switch(state, intent, kind)
        is_refused = self._refused is not None and self._refused[0] == state
        return error or fault, error is not None and (is_strict or is_refused)

    async def _mend(self) -> None:
        """Load once more what is served, and have it prepared anew where it was missed.

        A worker could not build it, as when the cache folder has been deleted; what can be loaded
        lies there again afterwards.
        """
        now_s, switching, seen = _now_s(), self._around.switching, self.seen
        if not self._mending.is_due(now_s):
            switching.give_up(self.name)
            return
        error: AnabranchError | None = None
        for number in self.shelf.in_memory:
            if seen is not None and number in seen.versions:
                error = await self.obtain(number, is_in_memory=True) or error
        if error is None and self.state is not None:
            versions = tuple(self.shelf.found[n].plan for n in sorted(self.shelf.in_memory))
            state = msgspec.structs.replace(self.state, versions=versions)
            error = await self._switch(state, self.intent, "config")
        if error is None:
            self._mending.succeeded()
            self.failures.forget()  # that worker may have been why something was refused
        else:
            self._mending.failed(now_s)
            switching.give_up(self.name)

    async def obtain(self, number: int, *, is_in_memory: bool = False) -> AnabranchError | None:
        """Have a complete version looked at; returns why it cannot be served.

        Args:
            number: of the version.
            is_in_memory: whether workers have it already, so that it takes no more room.
        """
        seen = self.seen
        version = None if seen is None else seen.versions.get(number)
        if seen is None or version is None:
            return NotFound(f"model {self.name!r} has no complete version {number}")
        self.loading = number
        try:
            request = LoadVersion(
                number=0,
                model=self.name,
                version=number,
                model_path=str(seen.path),
                version_path=str(version.path),
                serving_yaml=seen.serving_yaml,
                idle=self._around.is_serving(),
                available_bytes=None if is_in_memory else await self._make_room(version),
                in_use=self._around.in_use(),
            )
            found = await self._around.loader.load(request, self.on_progress)
        except AnabranchError as error:
            self._failed(number, error, version.fingerprint)
            return of_version(number, error)
        finally:
            self.loading = None
        self.failures.forget(number)
        self.shelf.put(version, found)
        self._reports.notes(found.version)
        return None

    async def _make_room(self, version: SeenVersion) -> int | None:
        """Let unserved versions go where a new one needs their room; returns what it may take.

        Raises:
            TooLarge: it does not fit.
            AnabranchError: the unserved ones could not be let go.
        """
        around, state = self._around, self.state
        plans = () if state is None else state.versions
        served = () if state is None else state.served
        kept_bytes = sum(plan.weight_bytes for plan in plans if plan.version not in served)
        held_bytes = sum(plan.weight_bytes for plan in plans)
        max_bytes = 0 if self.deployment is None else self.deployment.memory.max_bytes
        available = around.available_bytes()
        demand = Demand(version.bytes, held_bytes, kept_bytes, around.workers)
        if must_give_way(demand, max_bytes, available) and state is not None:
            left = tuple(plan for plan in plans if plan.version in served)
            lean = msgspec.structs.replace(state, versions=left)
            if (error := await self._switch(lean, self.intent, "config")) is not None:
                raise error
            available = None if available is None else available + around.workers * kept_bytes
        return None if available is None else available // around.workers

    # --- switching ------------------------------------------------------------------------------

    async def _switch(
        self, state: StatePlan | None, intent: Intent, kind: ReloadKind
    ) -> AnabranchError | None:
        """Make `state` what is served; returns why that failed."""
        shelf, old = self.shelf, self.state
        fresh = [] if state is None else shelf.fresh(state)
        in_memory = shelf.of(state)
        past = shelf.past_after(old, state)
        self.leaving = frozenset(shelf.in_memory.keys() - in_memory.keys())
        decide = self._deciding(intent, past, in_memory)
        begun_s = time.monotonic()
        try:
            await self._around.switching.switch(self.name, state, decide)
        except AnabranchError as error:
            return self._not_switched(state, fresh, error)
        finally:
            self.leaving = frozenset()
        self.state, self.intent, self._refused = state, intent, None
        shelf.switch(state, past)
        if state is None:
            self._reports.gone()
        else:
            self._switched(old, state, fresh, kind, round((time.monotonic() - begun_s) * 1e3, 1))
        return None

    def _not_switched(
        self, state: StatePlan | None, fresh: list[VersionPlan], error: AnabranchError
    ) -> AnabranchError:
        """Hold it against the newest version that workers lack, or against the state; return it."""
        if fresh and not isinstance(error, Unavailable):
            number = max(plan.version for plan in fresh)
            self._failed(number, error, self.shelf.found[number].fingerprint)
            self.shelf.give_back(number)
            return of_version(number, error)
        again_s = _AGAIN_S if isinstance(error, Unavailable) else float("inf")
        self._refused = (state, _now_s() + again_s)
        self._failed(None, error)
        return error

    def _switched(
        self,
        old: StatePlan | None,
        state: StatePlan,
        fresh: list[VersionPlan],
        kind: ReloadKind,
        switching_ms: float,
    ) -> None:
        """Say and count what is served now."""
        new = {plan.version: plan for plan in fresh if plan.version in state.served}
        for plan in new.values():
            if plan.published is not None and self._around.is_serving():
                self._reports.published(kind, time.time() - plan.published)
        if kind == "rollback" and state.default is not None:
            new[state.default] = self.shelf.in_memory[state.default].plan
        for number, plan in sorted(new.items()):
            phase_ms = {**self.shelf.take_phases(number), "switching": switching_ms}
            self._reports.served(kind, number, plan, phase_ms)
        if not new and (state.versions or (old is not None and old.versions)):
            default = state.default
            answering = None if default is None else self.shelf.in_memory[default].plan
            self._reports.served("config", default, answering, {"switching": switching_ms})

    def _deciding(
        self, intent: Intent, past: Past, in_memory: Mapping[int, Loaded]
    ) -> Callable[[int], Awaitable[None]]:
        """Return what makes a decision durable, given its epoch."""

        async def decide(epoch: int) -> None:
            record = ModelRecord(
                model=self.name,
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

    async def _keep_intent(self, intent: Intent) -> AnabranchError | None:
        """Remember what people asked for where nothing has to be switched for it."""
        if intent == self.intent:
            return None
        try:
            await self._deciding(intent, self.shelf.past, self.shelf.in_memory)(self._epoch)
        except AnabranchError as error:
            self._failed(None, error)
            return error
        self.intent = intent
        return None

    # --- what is seen and said ------------------------------------------------------------------

    def _read_deployment(self) -> AnabranchError | None:
        """Read serving.yaml where it has changed; what was read before stays where it is bad."""
        seen = self.seen
        settings = None if seen is None else seen.settings
        if settings == self._settings and self.deployment is not None:
            return None
        is_changed, self._settings = settings != self._settings, settings
        if seen is None:
            if self._is_named:
                self._failed(None, NotFound("the repository has no such model"))
            self.deployment = self.deployment or Deployment()
            return None
        if not is_changed:
            return None
        self.shelf.adopt_fingerprints(seen.versions)
        self.failures.forget()  # what could not be served may be now
        try:
            if seen.fault is not None:
                raise seen.fault
            deployment = read_yaml(seen.serving_yaml.encode(), Deployment, "serving.yaml")
            check_deployment(deployment)
            group_plan(deployment, self._around.workers, self._around.cores)
        except AnabranchError as error:
            self._failed(None, error, kind="config")
            return error
        self.deployment = deployment
        return None

    def _say(self, wanted: Desired, facts: Facts) -> AnabranchError | None:
        """Report, once, versions that are named but not there, and those that are behind.

        One whose files are still being copied is waited for.
        """
        missing = tuple(n for n in wanted.missing if n not in facts.present.changing)
        said, self._said = self._said, (missing, wanted.behind)
        if said == self._said:
            return None
        first: AnabranchError | None = None
        error: AnabranchError
        for number in missing:
            if self.failures.error_of(number) is None:
                named = ", ".join(namers(number, facts))
                error = NotFound(f"the repository has no such version, but {named} asks for it")
                self._failed(number, error)
                first = first or of_version(number, error)
        for number in wanted.behind:
            error = Conflict(
                "it has seen older events than the version that is served; publish one that has "
                "caught up, load it by number, or set catch_up: allow in serving.yaml"
            )
            self._failed(number, error, reason="behind")
            first = first or of_version(number, error)
        return first

    def _failed(
        self,
        number: int | None,
        error: AnabranchError,
        fingerprint: str | None = None,
        *,
        kind: ReloadKind = "version",
        reason: FailureReason | None = None,
    ) -> None:
        """Report what went wrong; with a fingerprint it is held against the version's files."""
        reason = reason or failure_reason(error)
        if number is not None and fingerprint is not None:
            self.failures.note(number, fingerprint, error, _now_s())
        self.failures.show(number, error, reason)
        self._reports.failed(kind, number, error, reason)


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
