"""How all workers come to serve the same: the decisions of every switch, without a clock or socket.

Each event returns what is to be done about it. Invariants, whatever the order of events:

1. What is published was prepared by every worker that has joined.
2. An epoch is given out once, over all models, and those that a word holds only rise.
3. A switch ends exactly once: published after its decision, or aborted with everything as before.

It is two-phase commit with the shared word as the commit message; see docs/processes.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from anabranch_server.processes.failures import error_of
from anabranch_server.processes.messages import Abort, Hello, Joined, Prepare, Serving
from anabranch_server.processes.plans import StatePlan
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
from anabranch_server.supervisor.numbering import first_number, incarnation_of
from anabranch_server.supervisor.slots import Slots
from anabranch_wire.errors import AnabranchError, DeadlineExceeded, Unavailable

__all__ = ["Agreement"]

_MAX_FAILURES: Final = 2
"""Workers lost while they prepared one state, from which on the state is taken for the cause."""


@dataclass(slots=True, eq=False)
class _Worker:
    """What is known of a worker that said hello.

    Attributes:
        held: model -> epochs that it has prepared.
        unanswered: what it was asked for, in order.
        missed: model -> why it could not prepare what is current; something is done about it.
        lacking: models that it answers requests without.
    """

    id: WorkerId
    is_open: bool
    held: dict[str, set[int]] = field(default_factory=dict)
    unanswered: dict[tuple[str, int], None] = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)
    has_joined: bool = False

    def has(self, change: Change) -> bool:
        """Whether it has what `change` says, or needs nothing for it."""
        return change.state is None or change.epoch in self.held.get(change.model, ())


@dataclass(slots=True, eq=False)
class _Ballot:
    """A switch at work; `pending` and `prepared` are disjoint."""

    change: Change
    pending: set[WorkerId]
    prepared: set[WorkerId] = field(default_factory=set)
    failed: set[WorkerId] = field(default_factory=set)
    is_agreed: bool = False


class Agreement:
    """Decides for all models of a server. One thread; the effects are carried out in their order.

    Args:
        words: slot -> current epoch, of the slots that have one.
        hellos: what workers said who served before this supervisor began; they are greeted
            afterwards, as others are.
        slots: number of shared words.
        incarnation: of the supervisor, from 1. Each has epochs of its own, so that what was for an
            earlier supervisor is never taken for an answer to this one.
    """

    def __init__(
        self,
        words: Mapping[int, int],
        hellos: Mapping[WorkerId, Hello],
        slots: int,
        incarnation: int = 1,
    ) -> None:
        self._current: dict[str, Change] = {}
        self._workers: dict[WorkerId, _Worker] = {}
        self._ballots: dict[str, _Ballot] = {}
        self._serving: Serving | None = None
        seen = [first_number(incarnation), *words.values()]
        for hello in hellos.values():
            for model, held in hello.models.items():
                seen.extend(held.epochs)
                epoch = words.get(held.slot)
                if epoch in held.epochs:
                    self._current[model] = Change(model, held.slot, epoch, held.state)
        self._last_epoch = max(seen)
        self._incarnation = incarnation
        self._slots = Slots(slots, {model: one.slot for model, one in self._current.items()})

    # --- what is true ---------------------------------------------------------------------------

    @property
    def current(self) -> Mapping[str, Change]:
        """Model -> what it serves; not to be kept."""
        return self._current

    @property
    def joined(self) -> Iterator[WorkerId]:
        """Workers that answer requests."""
        return (worker.id for worker in self._workers.values() if worker.has_joined)

    def has_workers(self) -> bool:
        """Whether there is anybody who could prepare a state."""
        return bool(self._workers)

    def is_owing(self, worker: WorkerId) -> bool:
        """Whether a worker has yet to answer something."""
        known = self._workers.get(worker)
        return known is not None and bool(known.unanswered)

    def has(self, worker: WorkerId, model: str) -> bool:
        """Whether a worker serves the current state of a model."""
        known, change = self._workers.get(worker), self._current.get(model)
        return known is not None and change is not None and known.has(change)

    def lacks(self, model: str) -> bool:
        """Whether a worker could not prepare what is current of a model."""
        current = self._current.get(model)
        return current is not None and any(
            model in (*worker.missed, *worker.lacking) and not worker.has(current)
            for worker in self._workers.values()
        )

    def is_orphaned(self, model: str) -> bool:
        """Whether what is current has generations of an earlier supervisor.

        Nobody can hand those out any more: who joins waits for a switch to others.
        """
        current = self._current.get(model)
        return current is not None and self._is_orphan(current)

    # --- switches -------------------------------------------------------------------------------

    def begin(self, model: str, state: StatePlan | None) -> tuple[Change, list[Effect]]:
        """Start a switch of a model that has none at work.

        Raises:
            Unavailable: there is no worker, or no room for another model.
        """
        assert model not in self._ballots, "one switch of a model at a time"
        if not self._workers:
            raise Unavailable(f"model {model!r}: no worker is there to prepare it")
        slot = self._slots.take(model, self._current, self._ballots)
        self._last_epoch += 1
        change = Change(model, slot, self._last_epoch, state)
        self._ballots[model] = _Ballot(change, set(self._workers))
        return change, [self._prepare(worker, change) for worker in self._workers.values()]

    def cancel(self, model: str) -> list[Effect]:
        """Abort a switch, unless its decision is being made already."""
        ballot = self._ballots.get(model)
        if ballot is None or ballot.is_agreed:
            return []
        return self._abort(ballot, Unavailable(f"model {model!r}: the switch was given up"))

    def decided(self, model: str) -> list[Effect]:
        """Go on after `Decide`: the change is durable."""
        ballot = self._ballots.pop(model)
        assert ballot.is_agreed, "decided before all were prepared"
        change = self._current[model] = ballot.change
        effects: list[Effect] = [Publish(change)]
        for worker in self._workers.values():
            worker.lacking.discard(model)
            worker.missed.pop(model, None)
            worker.held[model] = {change.epoch} & worker.held.get(model, set())
            if not worker.held[model]:  # it said hello while the decision was made
                effects.append(self._prepare(worker, change))
        effects.append(Ended(change))
        return [*effects, *self._join_all()]

    def undecided(self, model: str, error: AnabranchError) -> list[Effect]:
        """Go back after `Decide`: the change could not be made durable."""
        return self._abort(self._ballots[model], error)

    # --- workers --------------------------------------------------------------------------------

    def greet(self, worker: WorkerId, hello: Hello) -> list[Effect]:
        """Take in a worker: it is given what is current, and what is about to be."""
        known = self._workers[worker] = _Worker(worker, hello.is_open)
        effects: list[Effect] = []
        for model, held in hello.models.items():
            current = self._current.get(model)
            for epoch in held.epochs:
                if current is not None and epoch <= current.epoch:
                    known.held.setdefault(model, set()).add(epoch)
                else:  # of a supervisor that died before it published them
                    effects.append(Send(worker, Abort(model, epoch)))
        for change in self._current.values():
            if not known.has(change) and not self._is_orphan(change):
                effects.append(self._prepare(known, change))
        for ballot in self._ballots.values():
            if not ballot.is_agreed:
                ballot.pending.add(worker)
                effects.append(self._prepare(known, ballot.change))
        return [*effects, *self._join(known)]

    def acknowledge(self, worker: WorkerId, model: str, epoch: int) -> list[Effect]:
        """Note that a worker is prepared."""
        known = self._answered(worker, model, epoch)
        if known is None:
            current = self._current.get(model)
            if current is not None and current.epoch == epoch:
                return []
            return [Send(worker, Abort(model, epoch))]  # nobody waits for it any more
        known.held.setdefault(model, set()).add(epoch)
        effects: list[Effect] = []
        ballot = self._ballots.get(model)
        if ballot is not None and ballot.change.epoch == epoch and worker in ballot.pending:
            ballot.pending.remove(worker)
            ballot.prepared.add(worker)
            effects = self._count(ballot)
        return [*effects, *self._join(known)]

    def refuse(
        self, worker: WorkerId, model: str, epoch: int, kind: str, text: str
    ) -> list[Effect]:
        """Note that a worker cannot prepare an epoch, and has forgotten it."""
        known = self._answered(worker, model, epoch)
        if known is None:
            return []
        ballot = self._ballots.get(model)
        if ballot is not None and ballot.change.epoch == epoch and worker in ballot.pending:
            ballot.pending.remove(worker)
            return self._abort(ballot, error_of(kind, text))
        current = self._current.get(model)
        if current is None or current.epoch != epoch:
            return []
        known.missed[model] = text
        if known.has_joined or not self._someone_serves(current):
            known.lacking.add(model)  # better without one model than without all
        return [Missed(current), *self._join(known)]

    def give_up(self, model: str) -> list[Effect]:
        """Go on with workers as they are that could not prepare what is current of a model.

        One that has not joined is ended where others serve the model, and joins without it else.
        """
        current = self._current.get(model)
        effects: list[Effect] = []
        for known in self._workers.values():
            text = known.missed.pop(model, None)
            if current is None or known.has(current) or known.has_joined:
                continue
            if text is None:
                if self._is_orphan(current) and not self._someone_serves(current):
                    known.lacking.add(model)
                    effects += self._join(known)
                continue
            if self._someone_serves(current):
                why = f"it cannot prepare model {model}, which others serve: {text}"
                effects.append(Kill(known.id, "cannot_join", why))
            else:
                known.lacking.add(model)
                effects += self._join(known)
        return effects

    def expire(self, worker: WorkerId) -> list[Effect]:
        """Note that a worker owes an answer and gave none for the time that a switch may take.

        A worker that is late alone is at fault and ended; a state that nobody could prepare, or
        that costs a second worker, is at fault itself and refused.
        """
        known = self._workers.get(worker)
        if known is None or not known.unanswered:
            return []
        model, epoch = next(iter(known.unanswered))
        ballot = self._ballots.get(model)
        if ballot is not None and ballot.change.epoch == epoch and worker in ballot.pending:
            ballot.failed.add(worker)
            if len(ballot.failed) >= _MAX_FAILURES or not ballot.prepared:
                late = DeadlineExceeded(
                    f"model {model!r}: worker {worker.index} did not prepare it in time: "
                    "raise switch.prepare_timeout_s if it needs longer"
                )
                return self._abort(ballot, late)
        why = f"it did not prepare epoch {epoch} of model {model} in time"
        return [Kill(worker, "prepare_timeout", why)]

    def lose(self, worker: WorkerId) -> list[Effect]:
        """Go on without a worker whose death is certain."""
        if self._workers.pop(worker, None) is None:
            return []
        effects: list[Effect] = []
        for ballot in list(self._ballots.values()):
            ballot.prepared.discard(worker)
            if ballot.is_agreed:
                continue
            if worker in ballot.pending:
                ballot.pending.remove(worker)
                ballot.failed.add(worker)
            if len(ballot.failed) >= _MAX_FAILURES:
                lost = f"{len(ballot.failed)} workers were lost while they prepared it"
                effects += self._abort(
                    ballot, Unavailable(f"model {ballot.change.model!r}: {lost}")
                )
            else:
                effects += self._count(ballot)
        return [*effects, *self._join_all()]

    def serve(self, serving: Serving) -> list[Effect]:
        """Tell everyone, now and later, that the first look at the repository is over."""
        self._serving = serving
        return [Send(worker, serving) for worker in self.joined]

    # --- steps ----------------------------------------------------------------------------------

    def _is_orphan(self, change: Change) -> bool:
        generations = () if change.state is None else change.state.generations
        return any(incarnation_of(one.number) != self._incarnation for one in generations)

    def _prepare(self, worker: _Worker, change: Change) -> Send:
        worker.unanswered[change.model, change.epoch] = None
        urgent = self._serving is None or not worker.has_joined
        message = Prepare(change.model, change.slot, change.epoch, change.state, urgent)
        return Send(worker.id, message)

    def _answered(self, worker: WorkerId, model: str, epoch: int) -> _Worker | None:
        """Return the worker if it was asked, and nobody took the question back."""
        known = self._workers.get(worker)
        if known is None or (model, epoch) not in known.unanswered:
            return None
        del known.unanswered[model, epoch]
        return known

    def _count(self, ballot: _Ballot) -> list[Effect]:
        """Decide where all are prepared, give up where nobody is left."""
        if ballot.pending:
            return []
        if not ballot.prepared:
            model = ballot.change.model
            return self._abort(ballot, Unavailable(f"model {model!r}: no worker is left"))
        ballot.is_agreed = True
        return [Decide(ballot.change)]

    def _abort(self, ballot: _Ballot, error: AnabranchError) -> list[Effect]:
        change = ballot.change
        del self._ballots[change.model]
        if change.model not in self._current:
            self._slots.give_back(change.model)
        effects: list[Effect] = []
        for worker in sorted(ballot.pending | ballot.prepared):
            known = self._workers.get(worker)
            if known is not None:
                known.unanswered.pop((change.model, change.epoch), None)
                known.held.get(change.model, set()).discard(change.epoch)
                effects.append(Send(worker, Abort(change.model, change.epoch)))
        effects.append(Ended(change, error))
        return [*effects, *self._join_all()]

    def _join_all(self) -> list[Effect]:
        return [effect for worker in self._workers.values() for effect in self._join(worker)]

    def _join(self, worker: _Worker) -> list[Effect]:
        """Let a worker answer requests once it can do so whatever is published next."""
        if worker.has_joined:
            return []
        for change in self._current.values():
            if not worker.has(change) and change.model not in worker.lacking:
                return []
        for ballot in self._ballots.values():
            if ballot.is_agreed and worker.id not in ballot.prepared:
                return []
        worker.has_joined = True
        messages: list[Joined | Serving] = [] if worker.is_open else [Joined()]
        if self._serving is not None:
            messages.append(self._serving)
        return [Send(worker.id, message) for message in messages]

    def _someone_serves(self, change: Change) -> bool:
        return any(one.has_joined and one.has(change) for one in self._workers.values())
