"""Switches carried out: what the agreement decides becomes messages and shared words."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from anabranch_server.processes.message import Message
from anabranch_server.processes.messages import (
    Ack,
    CannotPrepare,
    Hello,
    Prepare,
    Released,
    Serving,
)
from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor.agreement import Agreement
from anabranch_server.supervisor.alterations import Alteration
from anabranch_server.supervisor.effects import (
    Change,
    Decide,
    Effect,
    Ended,
    Kill,
    Missed,
    Publish,
    Send,
    WorkerId,
)
from anabranch_server.supervisor.greetings import Greetings
from anabranch_server.supervisor.leases import Leases
from anabranch_server.supervisor.participants import Draft, Participant, Words, Workers
from anabranch_server.supervisor.patience import LeaseCheck, Patience
from anabranch_server.supervisor.uninterrupted import Outcome, to_the_end
from anabranch_wire.errors import AnabranchError, Internal, NotFound, Unavailable

__all__ = ["TransactionSettings", "Transactions"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """What a supervisor is told about its switches.

    Attributes:
        prepare_timeout_s: how long a worker may take to answer.
        stall_s: how long a worker may keep what is no longer current.
        incarnation: of this supervisor, from 1.
        expected_workers: number of workers that the launcher keeps.
    """

    prepare_timeout_s: float
    stall_s: float
    incarnation: int
    expected_workers: int


class Transactions:
    """One switch of a model at a time; a `Switching` and an `Attendant`. Event loop.

    Args:
        words: the epoch page, writable.
        settings: what this supervisor was told about switches.
        participants: take part in this order, and give up in the reverse one.
        on_published: is told after each publication.
        on_missed: is told the model of which a worker could not prepare what is current.

    Attributes:
        found_answering: whether workers answered requests already when it began.
    """

    def __init__(
        self,
        words: Words,
        settings: TransactionSettings,
        *,
        participants: Sequence[Participant] = (),
        on_published: Callable[[Change], None] = lambda change: None,
        on_missed: Callable[[str], None] = lambda model: None,
    ) -> None:
        self._words = words
        self._settings = settings
        self._participants = participants
        self._on_published = on_published
        self._on_missed = on_missed
        self._loop = asyncio.get_running_loop()
        self._pool: Workers | None = None
        self._greetings = Greetings(settings.expected_workers)
        self._agreement: Agreement | None = None
        self._adopted: dict[str, StatePlan] = {}
        self._serving: Serving | None = None
        self.found_answering = False
        self._leases = Leases()
        self._lease_check: LeaseCheck | None = None
        self._patience = Patience(settings.prepare_timeout_s, self._is_owing, self._expire)
        self._turns: dict[str, asyncio.Lock] = {}
        self._outcomes: dict[int, asyncio.Future[AnabranchError | None]] = {}

    async def begin(self, pool: Workers) -> None:
        """Take over what workers serve already, and begin to give orders."""
        self._pool = pool
        words = {
            slot: epoch
            for slot in range(self._words.words)
            if (epoch := self._words.load(slot)) > 0
        }
        if words:
            await self._greetings.gather(pool, words)
        hellos = self._greetings.take_hellos()
        agreement = Agreement(words, hellos, self._words.words, self._settings.incarnation)
        self._agreement = agreement
        now_s = self._loop.time()
        for change in agreement.current.values():
            self._leases.publish(change.model, change.epoch, now_s)
            if change.state is not None:  # without generations, of which this one has none
                self._adopted[change.model] = msgspec.structs.replace(change.state, generations=())
            self._on_published(change)
        for worker, hello in hellos.items():
            self._greet(worker, hello)
        for worker, released in self._greetings.take_releases():
            self.answered(worker, released)
        self._lease_check = LeaseCheck(self._leases, self._settings.stall_s, pool)
        self._greetings.ring()
        self.found_answering = any(hello.is_open for hello in hellos.values())
        if self._adopted:
            _log.info(
                "what workers serve is taken over: %s",
                ", ".join(sorted(self._adopted)),
                extra={"event": "adopted", "models": sorted(self._adopted)},
            )

    def serve(self, *, has_been_ready: bool) -> None:
        """Tell workers that the first look at the repository is over; again where that changes."""
        serving = Serving(has_been_ready)
        if serving != self._serving:
            self._serving = serving
            self._carry_out(self._talks.serve(serving))

    def close(self) -> None:
        """Give no more orders."""
        self._patience.close()
        if self._lease_check is not None:
            self._lease_check.close()

    # --- what is true ---------------------------------------------------------------------------

    def adopted(self) -> Mapping[str, StatePlan]:
        """Return what workers served already when this supervisor began, by model."""
        return self._adopted

    @property
    def current(self) -> Mapping[str, Change]:
        """Model -> what it serves; empty before `begin` returned."""
        return {} if self._agreement is None else self._agreement.current

    def joined(self) -> set[WorkerId]:
        """Return the workers that answer requests."""
        return set() if self._agreement is None else set(self._agreement.joined)

    def served_by(self, worker: WorkerId) -> dict[str, StatePlan]:
        """Return what a worker serves, by model."""
        talks = self._agreement
        if talks is None:
            return {}
        return {
            model: change.state
            for model, change in talks.current.items()
            if change.state is not None and talks.has(worker, model)
        }

    def lacks(self, model: str) -> bool:
        """See `Switching`."""
        talks = self._agreement
        return talks is not None and (talks.lacks(model) or talks.is_orphaned(model))

    def is_orphaned(self, model: str) -> bool:
        """See `Switching`."""
        return self._agreement is not None and self._agreement.is_orphaned(model)

    def floor(self, model: str) -> int:
        """Return the oldest epoch of a model that a worker may still read."""
        return self._leases.floor(model)

    def leases(self, model: str) -> tuple[int, float]:
        """Return how many workers may read a model, and for how long one kept what had passed."""
        return self._leases.standing(model, self._loop.time())

    # --- switching ------------------------------------------------------------------------------

    async def switch(
        self, model: str, state: StatePlan | None, decide: Callable[[int], Awaitable[None]]
    ) -> int:
        """Make `state` what the model serves; see `Switching`."""
        async with self._turns.setdefault(model, asyncio.Lock()):
            return await self._switch(Draft(model, state), decide)

    async def alter(
        self, model: str, alteration: Alteration, decide: Callable[[int], Awaitable[None]]
    ) -> int:
        """Change rows of a version that the model serves; a switch to the same state otherwise.

        Args:
            model: model name.
            alteration: what changes.
            decide: makes the decision durable; see `switch`.

        Returns:
            The epoch of the state.

        Raises:
            NotFound: the model has no such version in memory.
            AnabranchError: as `switch` raises it.
        """
        async with self._turns.setdefault(model, asyncio.Lock()):
            current = self.current.get(model)
            state = None if current is None else current.state
            versions = () if state is None else state.versions
            if alteration.version not in (one.version for one in versions):
                raise NotFound(f"model {model!r} has no version {alteration.version} in memory")
            return await self._switch(Draft(model, state, alteration), decide)

    def give_up(self, model: str) -> None:
        """See `Switching`."""
        if self._agreement is not None:
            self._carry_out(self._agreement.give_up(model))

    async def _switch(self, draft: Draft, decide: Callable[[int], Awaitable[None]]) -> int:
        """Make a draft what its model serves; it is the model's turn."""
        await self._wait_for_workers(draft.model)
        prepared: list[Participant] = []
        try:
            for participant in self._participants:
                draft = replace(draft, state=await participant.prepare(draft))
                prepared.append(participant)
            change = await self._agree(draft)
        except BaseException:
            _give_up(prepared, draft.model)
            raise
        await self._decide(change, decide, prepared)
        return change.epoch

    async def _agree(self, draft: Draft) -> Change:
        """Have every worker prepare it; nothing has changed when this raises."""
        change, effects = self._talks.begin(draft.model, draft.state)
        outcome = self._outcomes[change.epoch] = self._loop.create_future()
        try:
            self._carry_out(effects)
            error = await asyncio.shield(outcome)  # cancelled, it would not tell any more
            if error is not None:
                raise error
        except BaseException:
            self._call_off(change, outcome)
            raise
        finally:
            del self._outcomes[change.epoch]
        return change

    async def _wait_for_workers(self, model: str) -> None:
        """Wait until there is a worker: at a start, or where the only one was just replaced."""
        try:
            async with asyncio.timeout(self._settings.prepare_timeout_s):
                while self._agreement is None or not self._agreement.has_workers():
                    await self._greetings.wait()
        except TimeoutError:
            raise Unavailable(f"model {model!r}: no worker is there to prepare it") from None

    def _call_off(self, change: Change, outcome: asyncio.Future[AnabranchError | None]) -> None:
        """Abort a switch that was cancelled."""
        if not outcome.done():
            self._carry_out(self._talks.cancel(change.model))
        elif outcome.result() is None:  # in the very moment in which all were prepared
            given_up = Unavailable(f"model {change.model!r}: the switch was given up")
            self._carry_out(self._talks.undecided(change.model, given_up))

    async def _decide(
        self,
        change: Change,
        decide: Callable[[int], Awaitable[None]],
        prepared: Sequence[Participant],
    ) -> None:
        """Make the change durable and publish it; nobody can call it off from here on."""
        ends: list[Outcome] = [await to_the_end(decide(change.epoch))]
        failure = ends[0].failure
        if failure is None:
            for participant in prepared:
                ends.append(await to_the_end(participant.apply(change)))
            self._carry_out(self._talks.decided(change.model))
        else:
            reason = failure if isinstance(failure, AnabranchError) else Internal(repr(failure))
            self._carry_out(self._talks.undecided(change.model, reason))
            _give_up(prepared, change.model)
        for end in ends:
            end.settle()

    # --- workers --------------------------------------------------------------------------------

    def greeted(self, worker: WorkerId, hello: Hello) -> None:
        """See `Attendant`."""
        if self._agreement is None:
            self._greetings.keep_hello(worker, hello)
        else:
            self._greet(worker, hello)
        self._greetings.ring()

    def answered(self, worker: WorkerId, message: Ack | CannotPrepare | Released) -> None:
        """See `Attendant`."""
        if self._agreement is None:
            if isinstance(message, Released):
                self._greetings.keep_release(worker, message)
            return  # the rest answers another supervisor
        match message:
            case Ack(model, epoch):
                self._leases.hold(worker, model, epoch)
                effects = self._agreement.acknowledge(worker, model, epoch)
            case CannotPrepare(model, epoch, kind, error):
                effects = self._agreement.refuse(worker, model, epoch, kind, error)
            case Released(model, epoch):
                self._leases.release(worker, model, epoch)
                self._release(model)
                return
        self._patience.renew(worker)
        self._carry_out(effects)

    def lost(self, worker: WorkerId) -> None:
        """See `Attendant`."""
        self._greetings.forget(worker)
        self._leases.drop(worker)
        self._patience.renew(worker)
        if self._agreement is not None:
            self._carry_out(self._agreement.lose(worker))
            for model in self._agreement.current:
                self._release(model)
        self._greetings.ring()

    def _greet(self, worker: WorkerId, hello: Hello) -> None:
        for model, held in hello.models.items():
            current = self._talks.current.get(model)
            if current is not None and held.epochs:
                self._leases.hold(worker, model, min(held.epochs[0], current.epoch))
        self._carry_out(self._talks.greet(worker, hello))

    # --- effects --------------------------------------------------------------------------------

    @property
    def _talks(self) -> Agreement:
        assert self._agreement is not None, "begin() comes first"
        return self._agreement

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        assert self._pool is not None, "begin() comes first"
        for effect in effects:
            match effect:
                case Send(worker, message):
                    self._pool.send(worker, message, self._descriptors(message))
                    self._patience.expect(worker)
                case Kill(worker, reason, why):
                    self._pool.kill(worker, reason, why)
                case Missed(change):
                    self._on_missed(change.model)
                case Decide(change):
                    self._outcomes[change.epoch].set_result(None)
                case Publish(change):
                    self._words.store(change.slot, change.epoch)
                    self._leases.publish(change.model, change.epoch, self._loop.time())
                    self._on_published(change)
                    self._release(change.model)
                case Ended(change, error):
                    outcome = self._outcomes.get(change.epoch)
                    if error is not None and outcome is not None and not outcome.done():
                        outcome.set_result(error)

    def _descriptors(self, message: Message) -> list[int]:
        """Return what goes with a message."""
        if not isinstance(message, Prepare) or message.state is None:
            return []
        state = message.state
        return [fd for participant in self._participants for fd in participant.descriptors(state)]

    def _release(self, model: str) -> None:
        """Tell participants what nobody reads any more."""
        floor = self._leases.floor(model)
        for participant in self._participants:
            participant.release(model, floor)

    def _is_owing(self, worker: WorkerId) -> bool:
        return self._agreement is not None and self._agreement.is_owing(worker)

    def _expire(self, worker: WorkerId) -> None:
        self._carry_out(self._talks.expire(worker))


def _give_up(prepared: Sequence[Participant], model: str) -> None:
    for participant in reversed(prepared):
        participant.abort(model)
