"""Agreement: one case a rule, then every order of events that hypothesis can think of."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from anabranch_server.processes.messages import (
    Abort,
    Ack,
    CannotPrepare,
    HeldModel,
    Hello,
    Joined,
    Prepare,
    Serving,
)
from anabranch_server.processes.plans import GroupPlan, QueuePlan, StatePlan
from anabranch_server.supervisor.agreement import Agreement
from anabranch_server.supervisor.effects import (
    Decide,
    Effect,
    Ended,
    Kill,
    Missed,
    Publish,
    Send,
    WorkerId,
)
from anabranch_testing.lengths import length
from anabranch_wire.errors import (
    AnabranchError,
    Corrupt,
    DeadlineExceeded,
    Internal,
    InvalidInput,
    Unavailable,
)

_SLOTS = 4
_STATE = StatePlan(
    GroupPlan("ort-cpu", 1, "least_loaded", (), True, None, 0.0, None),
    QueuePlan(10, 10, 1.0, 1.0, 1),
)
W0, W1, W2 = WorkerId(0, 1), WorkerId(1, 1), WorkerId(2, 1)


def _hello(worker: WorkerId, *, is_open: bool = False, **models: HeldModel) -> Hello:
    return Hello(worker.index, worker.incarnation, 1000 + worker.index, is_open, models)


def _joined(*workers: WorkerId) -> Agreement:
    """An agreement with workers that answer requests, before the first model."""
    agreement = Agreement({}, {}, _SLOTS)
    for worker in workers:
        agreement.greet(worker, _hello(worker))
    return agreement


def _published(agreement: Agreement, model: str = "ctr") -> int:
    """Switch a model through; return the epoch."""
    change, _ = agreement.begin(model, _STATE)
    for worker in list(agreement.joined):
        agreement.acknowledge(worker, model, change.epoch)
    agreement.decided(model)
    return change.epoch


def _error(effects: Iterable[Effect]) -> AnabranchError | None:
    (ended,) = [effect for effect in effects if isinstance(effect, Ended)]
    return ended.error


# --- switches -------------------------------------------------------------------------------------


def test_a_switch_prepares_everywhere_decides_publishes() -> None:
    agreement = _joined(W0, W1)

    change, asked = agreement.begin("ctr", _STATE)
    first = agreement.acknowledge(W0, "ctr", change.epoch)
    last = agreement.acknowledge(W1, "ctr", change.epoch)
    published = agreement.decided("ctr")

    urgent = Prepare("ctr", change.slot, change.epoch, _STATE, True)
    assert asked == [Send(W0, urgent), Send(W1, urgent)]
    assert first == []
    assert last == [Decide(change)]
    assert published == [Publish(change), Ended(change)]
    assert agreement.current["ctr"] is change


def test_while_requests_are_served_nothing_is_urgent() -> None:
    agreement = _joined(W0)
    agreement.serve(Serving())

    _, (asked,) = agreement.begin("ctr", _STATE)

    assert isinstance(asked, Send)
    assert isinstance(asked.message, Prepare)
    assert not asked.message.urgent


def test_without_workers_nothing_is_switched() -> None:
    with pytest.raises(Unavailable, match="no worker"):
        _joined().begin("ctr", _STATE)


def test_one_refusal_aborts_everywhere_and_keeps_what_was_served() -> None:
    agreement = _joined(W0, W1, W2)
    served = _published(agreement)
    change, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", change.epoch)

    effects = agreement.refuse(W1, "ctr", change.epoch, "Corrupt", "bad weights")

    abort = Abort("ctr", change.epoch)
    assert effects[:2] == [Send(W0, abort), Send(W2, abort)]
    error = _error(effects)
    assert isinstance(error, Corrupt)
    assert error.message == "bad weights"
    assert agreement.current["ctr"].epoch == served
    assert agreement.acknowledge(W2, "ctr", change.epoch) == [Send(W2, abort)]  # too late


def test_a_kind_of_error_that_nobody_knows_is_internal() -> None:
    agreement = _joined(W0)
    change, _ = agreement.begin("ctr", _STATE)

    error = _error(agreement.refuse(W0, "ctr", change.epoch, "SystemExit", "?"))

    assert type(error) is Internal


def test_a_decision_that_cannot_be_made_durable_aborts() -> None:
    agreement = _joined(W0)
    change, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", change.epoch)

    effects = agreement.undecided("ctr", InvalidInput("disk full"))

    assert effects[0] == Send(W0, Abort("ctr", change.epoch))
    assert isinstance(_error(effects), InvalidInput)
    assert not agreement.current


def test_a_switch_is_given_up_before_its_decision_and_never_afterwards() -> None:
    agreement = _joined(W0)
    agreement.begin("ctr", _STATE)
    assert isinstance(_error(agreement.cancel("ctr")), Unavailable)

    change, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", change.epoch)

    assert agreement.cancel("ctr") == []
    assert agreement.decided("ctr")[0] == Publish(change)


def test_models_are_published_in_the_order_of_their_decisions() -> None:
    """Epochs are of one count, so the word of one model may pass that of another."""
    agreement = _joined(W0)
    ctr, _ = agreement.begin("ctr", _STATE)
    cvr, _ = agreement.begin("cvr", _STATE)
    agreement.acknowledge(W0, "ctr", ctr.epoch)
    agreement.acknowledge(W0, "cvr", cvr.epoch)

    assert agreement.decided("cvr") == [Publish(cvr), Ended(cvr)]
    assert agreement.decided("ctr") == [Publish(ctr), Ended(ctr)]
    assert ctr.slot != cvr.slot
    assert agreement.begin("ctr", _STATE)[0].epoch > cvr.epoch > ctr.epoch


# --- deaths and lateness --------------------------------------------------------------------------


def test_a_switch_goes_on_without_one_that_died() -> None:
    agreement = _joined(W0, W1)
    change, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", change.epoch)

    assert agreement.lose(W1) == [Decide(change)]


def test_nobody_left_is_no_consent() -> None:
    agreement = _joined(W0)
    agreement.begin("ctr", _STATE)

    assert isinstance(_error(agreement.lose(W0)), Unavailable)


def test_prepared_and_dead_counts_for_nothing() -> None:
    agreement = _joined(W0, W1)
    change, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", change.epoch)

    assert agreement.lose(W0) == []
    assert isinstance(_error(agreement.lose(W1)), Unavailable)


def test_a_second_death_while_preparing_refuses() -> None:
    agreement = _joined(W0, W1, W2)
    change, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", change.epoch)

    assert agreement.lose(W1) == []
    effects = agreement.lose(W2)

    assert effects[0] == Send(W0, Abort("ctr", change.epoch))
    assert isinstance(_error(effects), Unavailable)


def test_the_only_late_one_is_killed_and_the_switch_goes_on_after_its_death() -> None:
    agreement = _joined(W0, W1)
    change, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", change.epoch)
    assert not agreement.is_owing(W0)
    assert agreement.is_owing(W1)

    (kill,) = agreement.expire(W1)

    assert isinstance(kill, Kill)
    assert (kill.worker, kill.reason) == (W1, "prepare_timeout")
    assert agreement.lose(W1) == [Decide(change)]


def test_a_second_late_one_refuses() -> None:
    agreement = _joined(W0, W1, W2)
    change, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", change.epoch)
    agreement.expire(W1)

    effects = agreement.expire(W2)

    assert isinstance(_error(effects), DeadlineExceeded)
    assert not [effect for effect in effects if isinstance(effect, Kill)]


def test_a_state_that_nobody_prepared_in_time_costs_no_worker() -> None:
    agreement = _joined(W0)
    change, _ = agreement.begin("ctr", _STATE)

    effects = agreement.expire(W0)

    assert effects[0] == Send(W0, Abort("ctr", change.epoch))
    assert isinstance(_error(effects), DeadlineExceeded)
    assert agreement.expire(W0) == []  # it owes nothing any more


# --- joining --------------------------------------------------------------------------------------


def test_before_the_first_model_a_worker_joins_at_once() -> None:
    agreement = Agreement({}, {}, _SLOTS)

    assert agreement.greet(W0, _hello(W0)) == [Send(W0, Joined())]


def test_a_worker_joins_once_it_has_what_is_current() -> None:
    agreement = _joined(W0)
    epoch = _published(agreement)
    assert agreement.serve(Serving(True)) == [Send(W0, Serving(True))]

    (asked,) = agreement.greet(W1, _hello(W1))
    joined = agreement.acknowledge(W1, "ctr", epoch)

    assert asked == Send(W1, Prepare("ctr", agreement.current["ctr"].slot, epoch, _STATE, True))
    assert joined == [Send(W1, Joined()), Send(W1, Serving(True))]


def test_a_worker_that_joins_in_a_switch_enters_the_quorum() -> None:
    agreement = _joined(W0)
    epoch = _published(agreement)
    change, _ = agreement.begin("ctr", _STATE)
    agreement.greet(W1, _hello(W1))

    assert agreement.acknowledge(W0, "ctr", change.epoch) == []
    assert agreement.acknowledge(W1, "ctr", epoch) == [Send(W1, Joined())]
    assert agreement.acknowledge(W1, "ctr", change.epoch) == [Decide(change)]


def test_a_worker_that_comes_at_the_decision_joins_with_its_outcome() -> None:
    agreement = _joined(W0)
    old = _published(agreement)
    change, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", change.epoch)
    agreement.greet(W1, _hello(W1))

    assert agreement.acknowledge(W1, "ctr", old) == []  # open now, it would miss what comes
    published = agreement.decided("ctr")
    assert Send(W1, Prepare("ctr", change.slot, change.epoch, _STATE, True)) in published
    assert agreement.acknowledge(W1, "ctr", change.epoch) == [Send(W1, Joined())]


def test_a_worker_that_misses_what_others_serve_waits_until_it_can_be_prepared() -> None:
    agreement = _joined(W0)
    epoch = _published(agreement)
    agreement.greet(W1, _hello(W1))

    (missed,) = agreement.refuse(W1, "ctr", epoch, "Corrupt", "gone")
    assert isinstance(missed, Missed)
    assert missed.change.model == "ctr"
    assert agreement.lacks("ctr")
    assert list(agreement.joined) == [W0]

    again, _ = agreement.begin("ctr", _STATE)
    agreement.acknowledge(W0, "ctr", again.epoch)
    agreement.acknowledge(W1, "ctr", again.epoch)

    assert Send(W1, Joined()) in agreement.decided("ctr")
    assert not agreement.lacks("ctr")
    assert agreement.give_up("ctr") == []


def test_a_worker_that_cannot_take_what_others_serve_is_killed() -> None:
    agreement = _joined(W0)
    epoch = _published(agreement)
    agreement.greet(W1, _hello(W1))
    agreement.refuse(W1, "ctr", epoch, "Corrupt", "gone")
    again, _ = agreement.begin("ctr", _STATE)
    agreement.refuse(W1, "ctr", again.epoch, "Corrupt", "gone")

    (kill,) = agreement.give_up("ctr")

    assert isinstance(kill, Kill)
    assert (kill.worker, kill.reason) == (W1, "cannot_join")


def test_the_last_worker_joins_without_a_model_rather_than_not_at_all() -> None:
    agreement = _joined(W0)
    epoch = _published(agreement)
    again = WorkerId(0, 2)
    agreement.lose(W0)
    agreement.greet(again, _hello(again))

    missed, joined = agreement.refuse(again, "ctr", epoch, "Corrupt", "gone")

    assert isinstance(missed, Missed)
    assert joined == Send(again, Joined())
    assert agreement.give_up("ctr") == []
    assert not agreement.has(again, "ctr")
    assert agreement.lacks("ctr")


def test_a_worker_that_waits_joins_without_the_model_when_nobody_serves_it_any_more() -> None:
    agreement = _joined(W0)
    epoch = _published(agreement)
    agreement.greet(W1, _hello(W1))
    agreement.refuse(W1, "ctr", epoch, "Corrupt", "gone")
    agreement.lose(W0)

    assert agreement.give_up("ctr") == [Send(W1, Joined())]


def test_a_worker_too_late_to_join_is_killed() -> None:
    agreement = _joined(W0)
    _published(agreement)
    agreement.greet(W1, _hello(W1))

    (kill,) = agreement.expire(W1)

    assert isinstance(kill, Kill)


# --- another supervisor ---------------------------------------------------------------------------


def test_what_workers_serve_is_taken_over_and_what_was_not_published_is_aborted() -> None:
    held = HeldModel(2, (6, 7, 9), _STATE)
    unborn = HeldModel(3, (8,), None)
    hellos = {W0: _hello(W0, is_open=True, ctr=held, cvr=unborn)}

    agreement = Agreement({2: 7}, hellos, _SLOTS, 1)
    greeted = agreement.greet(W0, hellos[W0])
    change, _ = agreement.begin("ctr", _STATE)
    other, _ = agreement.begin("cvr", _STATE)

    assert (change.slot, change.epoch) == (2, 10)
    assert other.slot != 2
    assert greeted == [Send(W0, Abort("ctr", 9)), Send(W0, Abort("cvr", 8))]
    assert agreement.current["ctr"].state == _STATE
    assert list(agreement.joined) == [W0]


def test_words_that_nobody_knows_are_never_reached_again() -> None:
    agreement = Agreement({0: 41}, {}, _SLOTS)
    agreement.greet(W0, _hello(W0))

    change, _ = agreement.begin("ctr", _STATE)

    assert change.epoch == 42


def test_supervisors_share_no_epoch() -> None:
    """A worker may still be preparing what an earlier one told it to."""
    agreement = Agreement({}, {}, _SLOTS, 3)
    agreement.greet(W0, _hello(W0))

    change, _ = agreement.begin("ctr", _STATE)

    assert change.epoch == (2 << 32) + 1
    assert agreement.acknowledge(W0, "ctr", 1) == [Send(W0, Abort("ctr", 1))]


def test_what_nobody_has_any_more_is_begun_anew() -> None:
    """A worker that was preparing it for an earlier supervisor has dropped it before its hello."""
    agreement = Agreement({0: 41}, {W1: _hello(W1)}, _SLOTS, 2)

    greeted = agreement.greet(W1, _hello(W1))
    change, _ = agreement.begin("ctr", _STATE)

    assert greeted == [Send(W1, Joined())]
    assert change.epoch > 41
    assert agreement.acknowledge(W1, "ctr", change.epoch) == [Decide(change)]


# --- slots ----------------------------------------------------------------------------------------


def test_models_that_are_there_fill_the_page() -> None:
    agreement = _joined(W0)
    for name in "abcd":
        _published(agreement, name)

    with pytest.raises(Unavailable, match="no other"):
        agreement.begin("e", _STATE)


def test_the_model_that_has_been_gone_longest_makes_room() -> None:
    agreement = _joined(W0)
    for name in "abcd":
        _published(agreement, name)
    slots = {name: agreement.current[name].slot for name in "abcd"}
    for name in "cb":
        change, _ = agreement.begin(name, None)
        agreement.acknowledge(W0, name, change.epoch)
        agreement.decided(name)

    change, _ = agreement.begin("e", _STATE)
    back, _ = agreement.begin("c", _STATE)

    assert change.slot == slots["c"]
    assert back.slot == slots["b"]


def test_a_model_that_is_coming_back_keeps_its_slot() -> None:
    agreement = _joined(W0)
    for name in "abcd":
        _published(agreement, name)
    change, _ = agreement.begin("c", None)
    agreement.acknowledge(W0, "c", change.epoch)
    agreement.decided("c")
    agreement.begin("c", _STATE)

    with pytest.raises(Unavailable, match="no other"):
        agreement.begin("e", _STATE)


def test_a_first_switch_that_failed_takes_no_slot() -> None:
    agreement = _joined(W0)

    for number in range(2 * _SLOTS):
        change, _ = agreement.begin(f"m{number}", _STATE)
        agreement.refuse(W0, change.model, change.epoch, "InvalidInput", "no")


# --- every order ----------------------------------------------------------------------------------


@dataclass(eq=False)
class _SimulatedWorker:
    """What a worker process does: in order, one message at a time, and sees words by itself."""

    id: WorkerId
    inbox: deque[object] = field(default_factory=deque)
    outbox: deque[object] = field(default_factory=deque)
    held: dict[str, dict[int, StatePlan | None]] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    read: dict[str, int] = field(default_factory=dict)
    is_open: bool = False
    is_alive: bool = True

    def hello(self, words: dict[int, int]) -> Hello:
        models = {}
        for model, states in self.held.items():
            slot = self.slots[model]
            models[model] = HeldModel(slot, tuple(sorted(states)), states.get(words[slot]))
        return Hello(self.id.index, self.id.incarnation, 1, self.is_open, models)


class _World(RuleBasedStateMachine):
    """Workers, words and an agreement, with every message delivered when hypothesis says so."""

    workers = Bundle("workers")

    @initialize()
    def begin_world(self) -> None:
        self.words = dict.fromkeys(range(_SLOTS), 0)
        self.agreement = Agreement({}, {}, _SLOTS)
        self.alive: dict[WorkerId, _SimulatedWorker] = {}
        self.incarnations: dict[int, int] = {}
        self.supervisor = 1
        self.begun: set[int] = set()
        self.ended: set[int] = set()
        self.agreed: dict[str, int] = {}
        self.models: dict[str, int] = {}

    # what the rest of the supervisor would do

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    if to in self.alive:
                        self.alive[to].inbox.append(message)
                case Kill(to):
                    if to in self.alive:
                        self.alive[to].is_alive = False
                case Decide(change):
                    self.agreed[change.model] = change.epoch
                case Publish(change):
                    assert change.epoch > self.words[change.slot]
                    for worker in self.alive.values():
                        if worker.is_alive and worker.is_open:
                            assert change.epoch in worker.held.get(change.model, {})
                    self.words[change.slot] = change.epoch
                    self.models = {
                        model: slot for model, slot in self.models.items() if slot != change.slot
                    }
                    self.models[change.model] = change.slot
                case Ended(change):
                    assert change.epoch in self.begun - self.ended
                    self.ended.add(change.epoch)

    @rule(target=workers, index=st.integers(0, 2))
    def start(self, index: int) -> object:
        if any(worker.id.index == index for worker in self.alive.values()):
            return multiple()
        incarnation = self.incarnations[index] = self.incarnations.get(index, 0) + 1
        worker = _SimulatedWorker(WorkerId(index, incarnation))
        self.alive[worker.id] = worker
        worker.outbox.append(worker.hello(self.words))
        return worker

    @rule(model=st.sampled_from(["a", "b"]), gone=st.booleans())
    def switch(self, model: str, gone: bool) -> None:
        if model in self.agreement._ballots or not self.agreement.has_workers():
            return
        change, effects = self.agreement.begin(model, None if gone else _STATE)
        self.begun.add(change.epoch)
        self.carry_out(effects)

    @rule(worker=workers, can=st.sampled_from([True, True, True, False]))
    def work(self, worker: _SimulatedWorker, can: bool) -> None:
        """The worker takes its next message."""
        if not (worker.is_alive and worker.inbox):
            return
        match worker.inbox.popleft():
            case Prepare(model, slot, epoch, state) if can:
                worker.held.setdefault(model, {})[epoch] = state
                worker.slots[model] = slot
                worker.outbox.append(Ack(model, epoch, worker.id.incarnation))
            case Prepare(model, _, epoch):
                worker.refused.add(epoch)
                worker.outbox.append(CannotPrepare(model, epoch, "InvalidInput", "no"))
            case Abort(model, epoch):
                assert self.words[worker.slots.get(model, 0)] != epoch or not worker.held.get(model)
                worker.held.get(model, {}).pop(epoch, None)
            case Joined():
                worker.is_open = True

    @rule(worker=workers)
    def deliver(self, worker: _SimulatedWorker) -> None:
        """The supervisor takes the worker's next message; also what a dead one said last."""
        if worker.id not in self.alive or not worker.outbox:
            return
        agreement, who = self.agreement, worker.id
        match worker.outbox.popleft():
            case Hello() as hello:
                self.carry_out(agreement.greet(who, hello))
            case Ack(model, epoch):
                self.carry_out(agreement.acknowledge(who, model, epoch))
            case CannotPrepare(model, epoch, kind, error):
                self.carry_out(agreement.refuse(who, model, epoch, kind, error))

    @rule(worker=workers, turns=st.integers(1, 5))
    def converse(self, worker: _SimulatedWorker, turns: int) -> None:
        """The worker and the supervisor get on with each other for a while."""
        for _ in range(turns):
            self.deliver(worker)
            self.work(worker, True)

    @rule(worker=workers)
    def die(self, worker: _SimulatedWorker) -> None:
        worker.is_alive = False

    @rule(worker=consumes(workers))
    def bury(self, worker: _SimulatedWorker) -> None:
        """The supervisor sees that a worker is dead."""
        worker.is_alive = False
        if self.alive.pop(worker.id, None) is not None:
            self.carry_out(self.agreement.lose(worker.id))

    @rule(worker=workers)
    def expire(self, worker: _SimulatedWorker) -> None:
        if self.agreement.is_owing(worker.id):
            self.carry_out(self.agreement.expire(worker.id))

    @rule(model=st.sampled_from(["a", "b"]), durable=st.booleans())
    def decide(self, model: str, durable: bool) -> None:
        if self.agreed.pop(model, None) is None:
            return
        if durable:
            self.carry_out(self.agreement.decided(model))
        else:
            self.carry_out(self.agreement.undecided(model, InvalidInput("disk full")))

    @rule(model=st.sampled_from(["a", "b"]))
    def give_up(self, model: str) -> None:
        self.carry_out(self.agreement.cancel(model))

    @rule(model=st.sampled_from(["a", "b"]))
    def give_up_mending(self, model: str) -> None:
        self.carry_out(self.agreement.give_up(model))

    @rule()
    def serve(self) -> None:
        self.carry_out(self.agreement.serve(Serving()))

    @rule()
    def replace_supervisor(self) -> None:
        """The supervisor dies: what was sent, and what is not prepared yet, is lost."""
        living = {who: worker for who, worker in self.alive.items() if worker.is_alive}
        self.alive = living
        for worker in living.values():
            worker.inbox.clear()
            worker.outbox.clear()
        hellos = {who: worker.hello(self.words) for who, worker in living.items()}
        words = {slot: epoch for slot, epoch in self.words.items() if epoch}
        self.supervisor += 1
        self.agreement = Agreement(words, hellos, _SLOTS, self.supervisor)
        self.agreed.clear()
        # Where nobody is left who knows a model, the server begins anew with it.
        self.models = {
            model: slot
            for model, slot in self.models.items()
            if any(self.words[slot] in worker.held.get(model, {}) for worker in living.values())
        }
        self.begun = set(self.ended)
        for who, hello in hellos.items():
            self.carry_out(self.agreement.greet(who, hello))

    @rule(worker=workers, model=st.sampled_from(["a", "b"]))
    def score(self, worker: _SimulatedWorker, model: str) -> None:
        """A request comes to an open worker: what it reads is never older than what was read."""
        epoch = self.words[worker.slots.get(model, 0)]
        if worker.is_alive and worker.is_open and epoch in worker.held.get(model, {}):
            assert epoch >= worker.read.get(model, 0)
            worker.read[model] = epoch

    @precondition(lambda self: self.models)
    @invariant()
    def open_workers_have_what_is_current(self) -> None:
        for model, slot in self.models.items():
            for worker in self.alive.values():
                if worker.is_alive and worker.is_open and worker.slots.get(model) == slot:
                    epoch = self.words[slot]
                    assert epoch in worker.held[model] or epoch in worker.refused

    def teardown(self) -> None:
        """Whatever was begun ends when everyone answers."""
        while busy := [one for one in self.alive.values() if one.inbox or one.outbox]:
            for worker in busy:
                if not worker.is_alive:
                    self.alive.pop(worker.id)
                    self.carry_out(self.agreement.lose(worker.id))
                    continue
                self.work(worker, True)
                self.deliver(worker)
            for model in list(self.agreed):
                self.decide(model, True)
        for worker in list(self.alive.values()):
            if not worker.is_alive:
                self.carry_out(self.agreement.lose(self.alive.pop(worker.id).id))
        for model in list(self.agreed):
            self.decide(model, True)
        assert self.begun == self.ended
        for worker in self.alive.values():
            for model, states in worker.held.items():
                assert max(states, default=0) <= self.words[worker.slots[model]]


_World.TestCase.settings = settings(max_examples=length(150, 4000), stateful_step_count=80)
TestEveryOrder = pytest.mark.soak(_World.TestCase)
