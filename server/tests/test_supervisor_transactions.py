"""Pool and transactions over real channels, pidfds and shared words; workers are stand-ins."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anabranch_runtime.shared_words import SharedWords
from anabranch_server.metrics.totals import Totals
from anabranch_server.processes.messages import (
    Abort,
    Ack,
    CannotPrepare,
    HeldModel,
    Joined,
    Prepare,
    Released,
    Serving,
    SetLog,
)
from anabranch_server.processes.plans import StatePlan
from anabranch_server.supervisor.effects import Change, WorkerId
from anabranch_server.supervisor.participants import Draft, Participant
from anabranch_server.supervisor.transactions import Transactions, TransactionSettings
from anabranch_server.supervisor.workers import Pool
from anabranch_testing.event_loops import on_loop
from anabranch_testing.stand_ins import StandIn, until
from anabranch_testing.workers import state_of
from anabranch_wire.errors import (
    AnabranchError,
    Corrupt,
    DeadlineExceeded,
    InvalidInput,
    Unavailable,
)

_STATE = state_of()


@dataclass
class Fleet:
    """A supervisor's half of the control channels, and workers to put into it."""

    words: SharedWords
    totals: Totals
    transactions: Transactions
    pool: Pool
    workers: list[StandIn] = field(default_factory=list)
    decided: list[int] = field(default_factory=list)

    def worker(self, index: int, incarnation: int = 1) -> StandIn:
        """Attach a worker that has not said anything yet."""
        worker = StandIn(index, incarnation)
        self.workers.append(worker)
        worker.attach(self.pool)
        return worker

    async def joined(self, index: int, incarnation: int = 1) -> StandIn:
        """Attach a worker that prepares whatever it is told, and wait until it has joined."""
        worker = self.worker(index, incarnation)
        worker.prepare_all()
        worker.greet()
        await worker.hear(Joined)
        return worker

    async def decide(self, epoch: int) -> None:
        """Make a decision durable: the word must not know of it yet."""
        assert epoch not in {self.words.load(slot) for slot in range(self.words.words)}
        self.decided.append(epoch)

    async def switch(self, model: str = "m") -> int:
        """Switch a model to some state."""
        return await self.transactions.switch(model, _STATE, self.decide)

    def begin_switch(self) -> asyncio.Task[int]:
        """Begin to switch."""
        return asyncio.create_task(self.switch())


@asynccontextmanager
async def fleet(
    folder: Path,
    *,
    words: SharedWords | None = None,
    incarnation: int = 1,
    expected: int = 2,
    prepare_timeout_s: float = 20.0,
    stall_s: float = 20.0,
    participants: Sequence[Participant] = (),
    earlier: Sequence[tuple[StandIn, HeldModel]] = (),
) -> AsyncIterator[Fleet]:
    """Run a fleet until the block ends."""
    page = words or SharedWords.create(8)
    transactions = Transactions(
        page,
        TransactionSettings(prepare_timeout_s, stall_s, incarnation, expected),
        participants=participants,
    )
    totals = Totals(folder / "totals", "0" * 16)
    pool = Pool(transactions, totals, stall_s)
    running = Fleet(page, totals, transactions, pool)
    for worker, held in earlier:
        running.workers.append(worker)
        worker.attach(pool)
        worker.greet(is_open=True, models={"m": held})
    try:
        await transactions.begin(pool)
        yield running
    finally:
        transactions.close()
        pool.close()
        for worker in running.workers:
            worker.close()


# --- switches -------------------------------------------------------------------------------------


@on_loop
async def test_a_switch_is_decided_and_then_stored(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        await running.joined(0)
        await running.joined(1)

        first = await running.switch()
        second = await running.switch()

        assert first < second
        assert running.decided == [first, second]
        assert running.words.load(running.transactions.current["m"].slot) == second


@on_loop
async def test_a_switch_before_the_first_worker_waits_for_it(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        switching = running.begin_switch()
        await asyncio.sleep(0)

        await running.joined(0)

        assert await switching == 1


@on_loop
async def test_without_a_worker_a_switch_is_refused_in_time(tmp_path: Path) -> None:
    async with fleet(tmp_path, prepare_timeout_s=0.05) as running:
        with pytest.raises(Unavailable, match="no worker"):
            await running.switch()


@on_loop
async def test_a_refusal_is_raised_as_the_worker_met_it(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        await running.joined(0)
        stubborn = running.worker(1)
        stubborn.greet()
        await stubborn.hear(Joined)
        switching = running.begin_switch()
        asked = await stubborn.hear(Prepare)
        assert isinstance(asked, Prepare)

        stubborn.say(CannotPrepare("m", asked.epoch, "Corrupt", "bad weights"))

        with pytest.raises(Corrupt, match="bad weights"):
            await switching
        assert running.decided == []
        assert running.words.load(asked.slot) == 0
        assert await running.workers[0].hear(Abort) == Abort("m", asked.epoch)


@on_loop
async def test_what_cannot_be_made_durable_changes_nothing(tmp_path: Path) -> None:
    async def fail(epoch: int) -> None:
        raise InvalidInput("disk full")

    async def break_down(epoch: int) -> None:
        raise OSError("gone")

    async with fleet(tmp_path) as running:
        worker = await running.joined(0)
        before = await running.switch()

        with pytest.raises(InvalidInput, match="disk full"):
            await running.transactions.switch("m", _STATE, fail)
        with pytest.raises(OSError, match="gone"):
            await running.transactions.switch("m", _STATE, break_down)

        assert running.words.load(0) == before
        assert isinstance(await worker.hear(Abort), Abort)
        assert await running.switch() > before


@on_loop
async def test_switches_of_a_model_follow_each_other_and_models_do_not_wait(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path) as running:
        worker = running.worker(0)
        worker.greet()
        await worker.hear(Joined)
        first, second = running.begin_switch(), running.begin_switch()
        asked = await worker.hear(Prepare)
        assert isinstance(asked, Prepare)

        other = asyncio.create_task(running.switch("other"))
        also = await worker.hear(Prepare)
        assert isinstance(also, Prepare)
        assert also.model == "other"
        worker.say(Ack("other", also.epoch, 1))
        await other
        assert not first.done()
        assert not any(isinstance(one, Prepare) for one in worker.heard)

        worker.prepare_all()
        worker.say(Ack("m", asked.epoch, 1))
        assert await first < await second


# --- cancelling -----------------------------------------------------------------------------------


@on_loop
async def test_cancelling_before_the_decision_aborts(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        worker = running.worker(0)
        worker.greet()
        await worker.hear(Joined)
        switching = running.begin_switch()
        await worker.hear(Prepare)

        switching.cancel()

        with suppress(asyncio.CancelledError):
            await switching
        assert isinstance(await worker.hear(Abort), Abort)
        worker.prepare_all()
        assert running.words.load(0) == 0
        await running.switch()


@on_loop
async def test_cancelling_a_decision_lets_it_finish_first(tmp_path: Path) -> None:
    deciding, may_end = asyncio.Event(), asyncio.Event()

    async def decide(epoch: int) -> None:
        deciding.set()
        await may_end.wait()

    async with fleet(tmp_path) as running:
        await running.joined(0)
        switching = asyncio.create_task(running.transactions.switch("m", _STATE, decide))
        await deciding.wait()

        switching.cancel()
        await asyncio.sleep(0)
        assert not switching.done()
        may_end.set()

        with pytest.raises(asyncio.CancelledError):
            await switching
        assert running.words.load(0) == 1


# --- participants ---------------------------------------------------------------------------------


class _Recorder:
    """A participant that writes down what it is asked."""

    def __init__(self, name: str, said: list[str], fault: AnabranchError | None = None) -> None:
        self._name, self._said, self._fault = name, said, fault

    async def prepare(self, draft: Draft) -> StatePlan | None:
        self._said.append(f"{self._name} prepare")
        if self._fault is not None:
            raise self._fault
        return draft.state

    async def apply(self, change: Change) -> None:
        self._said.append(f"{self._name} apply")

    def abort(self, model: str) -> None:
        self._said.append(f"{self._name} abort")

    def release(self, model: str, floor: int) -> None:
        pass

    def descriptors(self, state: StatePlan) -> Sequence[int]:
        return ()


@on_loop
async def test_participants_apply_in_order_before_the_word_is_stored(tmp_path: Path) -> None:
    said: list[str] = []
    both = [_Recorder("a", said), _Recorder("b", said)]
    async with fleet(tmp_path, participants=both) as running:
        await running.joined(0)

        await running.switch()

        assert said == ["a prepare", "b prepare", "a apply", "b apply"]


@on_loop
async def test_participants_abort_in_reverse(tmp_path: Path) -> None:
    async def fail(epoch: int) -> None:
        raise InvalidInput("disk full")

    said: list[str] = []
    both = [_Recorder("a", said), _Recorder("b", said)]
    async with fleet(tmp_path, participants=both) as running:
        await running.joined(0)

        with pytest.raises(InvalidInput):
            await running.transactions.switch("m", _STATE, fail)

        assert said == ["a prepare", "b prepare", "b abort", "a abort"]


@on_loop
async def test_a_participant_that_refuses_stops_the_switch(tmp_path: Path) -> None:
    said: list[str] = []
    both = [_Recorder("a", said), _Recorder("b", said, Unavailable("no room"))]
    async with fleet(tmp_path, participants=both) as running:
        await running.joined(0)

        with pytest.raises(Unavailable, match="no room"):
            await running.switch()

        assert said == ["a prepare", "b prepare", "a abort"]
        assert running.decided == []


# --- deaths ---------------------------------------------------------------------------------------


@on_loop
async def test_a_worker_that_dies_while_preparing_is_done_without(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        await running.joined(0)
        other = running.worker(1)
        other.greet()
        await other.hear(Joined)
        switching = running.begin_switch()
        await other.hear(Prepare)

        other.die()

        assert await switching == 1
        assert running.transactions.joined() == {WorkerId(0, 1)}


@on_loop
async def test_the_only_worker_dying_refuses(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        only = running.worker(0)
        only.greet()
        switching = running.begin_switch()
        await only.hear(Prepare)

        only.die()

        with pytest.raises(Unavailable, match="no worker is left"):
            await switching


@on_loop
async def test_a_closed_channel_is_no_death_and_the_process_is_killed(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        worker = await running.joined(0)

        worker.hang_up()
        assert len(running.pool) == 1

        await worker.wait_dead()
        await running.pool.wait_empty()
        await running.joined(0, 2)
        assert dict(running.totals.restarts) == {"closed_channel": 1}


@on_loop
async def test_a_worker_that_answers_no_ping_is_killed(tmp_path: Path) -> None:
    async with fleet(tmp_path, stall_s=1.5) as running:
        await running.joined(0)
        hung = await running.joined(1)

        hung.is_deaf = True

        await hung.wait_dead()
        await until(lambda: len(running.pool) == 1)
        assert [worker.id for worker in running.pool] == [WorkerId(0, 1)]


@on_loop
async def test_a_late_worker_is_killed_and_the_others_switch(tmp_path: Path) -> None:
    async with fleet(tmp_path, prepare_timeout_s=0.5) as running:
        await running.joined(0)
        late = running.worker(1)
        late.greet()
        await late.hear(Joined)

        assert await running.switch() == 1

        await late.wait_dead()


@on_loop
async def test_a_state_that_nobody_prepares_in_time_is_refused(tmp_path: Path) -> None:
    async with fleet(tmp_path, prepare_timeout_s=0.2) as running:
        only = running.worker(0)
        only.greet()
        await only.hear(Joined)

        with pytest.raises(DeadlineExceeded, match="prepare_timeout_s"):
            await running.switch()

        assert only.process.poll() is None


@on_loop
async def test_a_worker_that_keeps_an_old_epoch_is_killed(tmp_path: Path) -> None:
    async with fleet(tmp_path, stall_s=2.0) as running:
        prompt = await running.joined(0)
        hanging = await running.joined(1)
        first = await running.switch()
        assert running.transactions.floor("m") == first

        second = await running.switch()
        prompt.say(Released("m", second))

        await hanging.wait_dead()
        await until(lambda: running.transactions.floor("m") == second)
        assert prompt.process.poll() is None


@on_loop
async def test_a_worker_that_says_it_is_another_is_killed(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        worker = running.worker(0)
        worker.incarnation = 7

        worker.greet()

        await worker.wait_dead()


# --- joining --------------------------------------------------------------------------------------


@on_loop
async def test_a_worker_that_comes_back_gets_what_is_current(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        worker = await running.joined(0)
        epoch = await running.switch()
        running.transactions.serve(has_been_ready=False)
        assert await worker.hear(Serving) == Serving(False)
        running.transactions.serve(has_been_ready=True)
        running.transactions.serve(has_been_ready=True)
        assert await worker.hear(Serving) == Serving(True)
        assert not [one for one in worker.heard if isinstance(one, Serving)]
        worker.die()
        await running.pool.wait_empty()

        again = running.worker(0, 2)
        again.greet()
        asked = await again.hear(Prepare)
        assert asked == Prepare("m", 0, epoch, _STATE, True)
        assert not running.transactions.joined()
        again.say(Ack("m", epoch, 2))

        await again.hear(Joined)
        assert await again.hear(Serving) == Serving(True)
        assert running.transactions.joined() == {WorkerId(0, 2)}
        assert set(running.transactions.served_by(WorkerId(0, 2))) == {"m"}
        assert dict(running.totals.restarts) == {"exited": 1}


@on_loop
async def test_a_worker_that_never_gets_ready_to_join_is_killed(tmp_path: Path) -> None:
    async with fleet(tmp_path, prepare_timeout_s=0.3) as running:
        await running.joined(0)
        await running.switch()

        slow = running.worker(1)
        slow.greet()

        await slow.wait_dead()


@on_loop
async def test_log_settings_reach_those_who_come_later(tmp_path: Path) -> None:
    async with fleet(tmp_path) as running:
        early = await running.joined(0)

        running.pool.set_log(SetLog("debug"))
        running.pool.set_log(SetLog(access=True))
        late = await running.joined(1)

        assert await early.hear(SetLog) == SetLog("debug")
        assert await late.hear(SetLog) == SetLog("debug", True)


@on_loop
async def test_a_worker_can_join_a_server_of_many_models(tmp_path: Path) -> None:
    models = [f"m{number}" for number in range(1500)]
    async with fleet(tmp_path, words=SharedWords.create(len(models))) as running:
        await running.joined(0)
        for model in models:
            await running.switch(model)

        late = await running.joined(1)

        prepared = [message.model for message in late.heard if isinstance(message, Prepare)]
        assert sorted(prepared) == sorted(models)
        assert running.transactions.joined() == {WorkerId(0, 1), WorkerId(1, 1)}


# --- another supervisor ---------------------------------------------------------------------------


@on_loop
async def test_another_supervisor_takes_over_and_aborts_what_was_not_published(
    tmp_path: Path,
) -> None:
    words = SharedWords.create(8)
    words.store(3, 6)
    both = [StandIn(0), StandIn(1)]
    held = HeldModel(3, (6, 7), _STATE)
    async with fleet(
        tmp_path, words=words, incarnation=2, earlier=[(worker, held) for worker in both]
    ) as running:
        for worker in both:
            assert await worker.hear(Abort) == Abort("m", 7)
            worker.prepare_all()

        assert running.transactions.adopted() == {"m": _STATE}
        assert running.transactions.joined() == {WorkerId(0, 1), WorkerId(1, 1)}
        epoch = await running.switch()
        assert epoch > 1 << 32
        assert words.load(3) == epoch


@on_loop
async def test_a_release_that_comes_before_the_takeover_counts(tmp_path: Path) -> None:
    words = SharedWords.create(8)
    words.store(0, 6)
    early, late = StandIn(0), StandIn(1)
    async with asyncio.TaskGroup() as group, _unbegun(tmp_path, words) as running:
        running.workers += [early, late]
        for worker in (early, late):
            worker.attach(running.pool)
        beginning = group.create_task(running.transactions.begin(running.pool))
        early.greet(is_open=True, models={})
        late.say(Released("m", 6))
        late.greet(is_open=True, models={"m": HeldModel(0, (5, 6), _STATE)})
        late.say(Released("m", 6))
        await beginning
        await until(lambda: running.transactions.floor("m") == 6)


@pytest.mark.parametrize("end", ["hello", "death", "silence"])
@on_loop
async def test_nothing_is_published_past_a_worker_that_served_before(
    tmp_path: Path, end: str
) -> None:
    words = SharedWords.create(8)
    words.store(0, 6)
    held = HeldModel(0, (6,), _STATE)
    known, late = StandIn(0), StandIn(1)
    silence_s = 4.0 if end == "silence" else 20.0
    async with (
        asyncio.TaskGroup() as group,
        _unbegun(tmp_path, words, silence_s=silence_s) as running,
    ):
        running.workers += [known, late]
        for worker in (known, late):
            worker.prepare_all()
            worker.attach(running.pool, age_s=100.0)
        beginning = group.create_task(running.transactions.begin(running.pool))
        switching = group.create_task(running.switch())
        known.greet(is_open=True, models={"m": held})
        await until(lambda: running.pool.unheard() == {WorkerId(1, 1)})
        for _ in range(20):
            await asyncio.sleep(0)
        assert not beginning.done()
        assert words.load(0) == 6

        if end == "hello":
            late.greet(is_open=True, models={"m": held})
        elif end == "death":
            late.die()
        await beginning
        epoch = await switching

        assert running.transactions.adopted() == {"m": _STATE}
        assert words.load(0) == epoch > 6
        asked = [one.epoch for one in late.heard if isinstance(one, Prepare)]
        assert asked == ([epoch] if end == "hello" else [])


@asynccontextmanager
async def _unbegun(
    folder: Path, words: SharedWords, *, silence_s: float = 20.0
) -> AsyncIterator[Fleet]:
    transactions = Transactions(
        words,
        TransactionSettings(prepare_timeout_s=20, stall_s=20, incarnation=2, expected_workers=2),
    )
    totals = Totals(folder / "totals", "0" * 16)
    running = Fleet(words, totals, transactions, Pool(transactions, totals, silence_s))
    try:
        yield running
    finally:
        transactions.close()
        running.pool.close()
        for worker in running.workers:
            worker.close()


@on_loop
async def test_what_nobody_knows_any_more_is_not_waited_for_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = SharedWords.create(8)
    words.store(0, 6)
    async with fleet(tmp_path, words=words, incarnation=2, expected=1) as running:
        assert running.transactions.adopted() == {}
    events = [getattr(record, "event", None) for record in caplog.records]
    assert "adoption_incomplete" in events
