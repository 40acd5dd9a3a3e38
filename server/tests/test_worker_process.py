import os
import signal
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import msgspec
import numpy as np
import pytest

from anabranch_server.processes.messages import (
    Abort,
    Ack,
    CannotPrepare,
    Drain,
    Hello,
    Joined,
    Opened,
    Ping,
    Pong,
    Prepare,
    Released,
    Serving,
    SetLog,
    Trace,
    Traced,
)
from anabranch_testing.rpc import infer, raw_request
from anabranch_testing.workers import (
    GROUP,
    QUEUE,
    RunningWorker,
    ScoredBy,
    scale_plan,
    started_worker,
    state_of,
)

pytestmark = pytest.mark.alone


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RunningWorker]:
    with started_worker(tmp_path) as running:
        yield running


@pytest.fixture
def serving(worker: RunningWorker, tmp_path: Path) -> RunningWorker:
    """A worker with open doors that serves version 1 in epoch 1."""
    worker.hear(Hello)
    worker.switch(1, state_of(scale_plan(tmp_path, 1)))
    worker.hear(Released)
    worker.join()
    return worker


# --- joining and switching ------------------------------------------------------------------------


def test_it_opens_its_doors_when_it_has_joined(worker: RunningWorker, tmp_path: Path) -> None:
    hello = worker.hear(Hello)
    assert (hello.index, hello.incarnation, hello.is_open, hello.models) == (0, 1, False, {})
    assert hello.pid == worker.child.pid

    worker.switch(1, state_of(scale_plan(tmp_path, 7)))
    assert worker.hear(Released) == Released("m", 1)
    with pytest.raises(urllib.error.URLError):
        worker.score()
    worker.join()

    assert worker.score() == ScoredBy("7", 7.0)
    assert worker.is_ready()


def test_before_the_first_look_is_over_models_are_not_said_to_be_missing(
    worker: RunningWorker,
) -> None:
    worker.hear(Hello)
    worker.say(Joined())
    worker.hear(Opened)
    with pytest.raises(urllib.error.HTTPError, match="503"):
        worker.score()

    worker.say(Serving())

    worker.say(Ping(1))
    worker.hear(Pong)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        worker.score()


def test_a_trace_is_of_the_newest_request_and_of_no_supervisor_that_is_gone(
    serving: RunningWorker,
) -> None:
    serving.say(Trace(7, 0.1))
    serving.new_supervisor()
    serving.score()
    serving.say(Trace(1, 60.0))
    serving.say(Trace(2, 2.0))
    serving.say(Ping(0))
    serving.hear(Pong)
    serving.score()

    traced = serving.hear(Traced)

    assert traced.number == 2
    (request,) = traced.recorded.passages
    assert (request.name, request.args["code"], request.args["model"]) == ("request", "OK", "m")
    assert {span.name for span in traced.recorded.spans} == {"stage", "run", "deliver", "batch"}
    serving.say(Ping(1))
    serving.hear(Pong)
    assert not serving.has_said(Traced)


def test_what_is_prepared_is_not_seen_before_the_word_says_so(
    serving: RunningWorker, tmp_path: Path
) -> None:
    serving.prepare(2, state_of(scale_plan(tmp_path, 2)))
    assert serving.score() == ScoredBy("1", 1.0)

    serving.words.store(0, 2)

    assert serving.score() == ScoredBy("2", 2.0)
    assert serving.hear(Released) == Released("m", 2)


def test_requests_meanwhile_see_whole_states_and_never_go_back(
    serving: RunningWorker, tmp_path: Path
) -> None:
    with steady_requests(serving) as answers:
        for epoch in range(2, 12):
            serving.switch(epoch, state_of(scale_plan(tmp_path, epoch)))
            assert serving.hear(Released) == Released("m", epoch)

    assert all(answer.score == float(answer.version) for answer in answers)
    versions = [int(answer.version) for answer in answers]
    assert versions == sorted(versions)
    assert len(set(versions)) > 3


def test_builds_have_the_lowest_priority_and_executors_have_not(
    serving: RunningWorker, tmp_path: Path
) -> None:
    slow = scale_plan(tmp_path, 2, rounds=200_000)
    group = msgspec.structs.replace(GROUP, executors=3)
    serving.say(Prepare("m", 0, 2, state_of(slow, group=group)))
    wait_until(  # where the processors are busy, a build has to have its share
        lambda: os.SCHED_IDLE in serving.policies() or "build_starved" in serving.log.read_text()
    )

    serving.hear(Ack)

    wait_until(lambda: serving.policies() == {os.SCHED_OTHER})


def test_a_version_that_two_states_name_is_built_once(
    serving: RunningWorker, tmp_path: Path
) -> None:
    first = scale_plan(tmp_path, 1)
    Path(first.path).unlink()  # it could not be built again

    serving.switch(2, state_of(first, scale_plan(tmp_path, 2)))

    assert serving.score() == ScoredBy("2", 2.0)
    assert serving.score(version="1") == ScoredBy("1", 1.0)


def test_a_version_that_is_kept_but_not_served_cannot_be_named_and_comes_back_at_once(
    serving: RunningWorker, tmp_path: Path
) -> None:
    first, second = scale_plan(tmp_path, 1), scale_plan(tmp_path, 2)
    serving.switch(2, state_of(first, second, served=[2], default=2))
    Path(first.path).unlink()

    with pytest.raises(urllib.error.HTTPError, match="404"):
        serving.score(version="1")
    serving.switch(3, state_of(first, second, served=[1], default=1))

    assert serving.score() == ScoredBy("1", 1.0)


def test_the_same_version_with_other_files_is_built_anew(
    serving: RunningWorker, tmp_path: Path
) -> None:
    serving.switch(2, state_of(scale_plan(tmp_path / "again", 1, factor=5.0)))

    assert serving.score() == ScoredBy("1", 5.0)


def test_another_group_builds_every_version_again_and_the_old_one_goes(
    serving: RunningWorker, tmp_path: Path
) -> None:
    threads = serving.figures()[1]
    wider = msgspec.structs.replace(GROUP, executors=4)
    serving.switch(2, state_of(scale_plan(tmp_path, 1), group=wider))
    assert serving.hear(Released) == Released("m", 2)

    assert serving.score() == ScoredBy("1", 1.0)
    wait_until(lambda: serving.figures()[1] == threads + 2)


def test_a_queue_changes_without_a_build(serving: RunningWorker, tmp_path: Path) -> None:
    first = scale_plan(tmp_path, 1)
    Path(first.path).unlink()
    serving.switch(2, state_of(first, queue=msgspec.structs.replace(QUEUE, max_requests=7)))
    assert serving.hear(Released) == Released("m", 2)

    assert serving.score() == ScoredBy("1", 1.0)


def test_a_model_that_is_gone_is_not_known(serving: RunningWorker, tmp_path: Path) -> None:
    serving.switch(2, None)
    assert serving.hear(Released) == Released("m", 2)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        serving.score()
    assert serving.new_supervisor().models == {}

    serving.switch(3, state_of(scale_plan(tmp_path, 1)), slot=5)

    assert serving.score() == ScoredBy("1", 1.0)


def test_several_models_are_prepared_at_once_and_switch_each_by_itself(
    serving: RunningWorker, tmp_path: Path
) -> None:
    names = [f"other{index}" for index in range(6)]
    for slot, name in enumerate(names, 1):
        plan = state_of(scale_plan(tmp_path, 3, model=name))
        serving.say(Prepare(name, slot, 10 + slot, plan))
    acks = {serving.hear(Ack).model for _ in names}
    assert acks == set(names)

    serving.words.store(3, 13)

    assert serving.score("other2") == ScoredBy("3", 3.0)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        serving.score("other3")


def test_an_epoch_is_not_released_while_a_request_computes_its_version(
    worker: RunningWorker, tmp_path: Path
) -> None:
    worker.hear(Hello)
    slow = scale_plan(tmp_path, 1, rounds=300_000)
    worker.switch(1, state_of(slow))
    worker.hear(Released)
    worker.join()
    answers: list[ScoredBy] = []
    asking = threading.Thread(target=lambda: answers.append(worker.score()))
    asking.start()
    wait_until(lambda: worker.gauge("anabranch_requests_in_flight") == 1)

    worker.switch(2, state_of(scale_plan(tmp_path, 2)))

    assert worker.score() == ScoredBy("2", 2.0)  # a second executor is free
    assert not worker.has_said(Released)
    hello = worker.new_supervisor()
    assert hello.models["m"].epochs == (1, 2)
    assert not answers, "the request was over too early to see anything"
    assert worker.hear(Released) == Released("m", 2)
    asking.join()
    assert answers == [ScoredBy("1", 1.0)]


def test_where_idle_threads_starve_versions_are_built_all_the_same(tmp_path: Path) -> None:
    with started_worker(tmp_path, "switch.prepare_timeout_s=0.001") as worker:
        worker.hear(Hello)
        worker.switch(1, state_of(scale_plan(tmp_path, 1)))
        worker.join()

        assert worker.score() == ScoredBy("1", 1.0)
        assert '"event":"build_starved"' in worker.log.read_text()


def test_both_doors_answer(serving: RunningWorker) -> None:
    request = raw_request("m", {"x": np.full((2, 1), 3.0, np.float32)})
    with grpc.insecure_channel(serving.grpc) as channel:
        response, _ = infer(channel, request)

    assert response.model_version == "1"
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [3.0, 3.0]


# --- what goes wrong ------------------------------------------------------------------------------


def test_an_aborted_epoch_is_forgotten(serving: RunningWorker, tmp_path: Path) -> None:
    serving.prepare(2, state_of(scale_plan(tmp_path, 2)))
    serving.say(Abort("m", 2))
    held = serving.new_supervisor().models["m"]
    assert held.epochs == (1,)

    serving.switch(2, state_of(scale_plan(tmp_path, 3)))

    assert serving.score() == ScoredBy("3", 3.0)


def test_an_abort_while_it_builds_leaves_nothing(serving: RunningWorker, tmp_path: Path) -> None:
    serving.say(Prepare("m", 0, 2, state_of(scale_plan(tmp_path, 2))))
    serving.say(Abort("m", 2))
    serving.prepare(3, state_of(scale_plan(tmp_path, 3)))

    assert not serving.has_said(CannotPrepare)
    assert serving.new_supervisor().models["m"].epochs == (1, 3)


def test_an_epoch_that_is_current_cannot_be_aborted(serving: RunningWorker) -> None:
    serving.say(Abort("m", 1))
    serving.say(Ping(1))
    serving.hear(Pong)

    assert serving.score() == ScoredBy("1", 1.0)


def test_a_broken_file_is_refused_and_changes_nothing(
    serving: RunningWorker, tmp_path: Path
) -> None:
    broken = scale_plan(tmp_path, 2)
    Path(broken.path).write_bytes(b"no graph")
    serving.say(Prepare("m", 0, 2, state_of(scale_plan(tmp_path, 3), broken)))

    refused = serving.hear(CannotPrepare)

    assert (refused.model, refused.epoch, refused.kind) == ("m", 2, "InvalidInput")
    assert refused.error
    assert serving.new_supervisor().models["m"].epochs == (1,)
    assert serving.score() == ScoredBy("1", 1.0)


def test_a_current_state_that_cannot_be_prepared_leaves_a_model_without_versions(
    worker: RunningWorker, tmp_path: Path
) -> None:
    worker.hear(Hello)
    plan = scale_plan(tmp_path, 1)
    lost = Path(plan.path).rename(tmp_path / "lost")
    worker.words.store(0, 1)
    worker.say(Prepare("m", 0, 1, state_of(plan)))
    worker.hear(CannotPrepare)
    worker.join()
    with pytest.raises(urllib.error.HTTPError, match="503"):
        worker.score()

    lost.rename(plan.path)
    worker.switch(2, state_of(plan))

    assert worker.score() == ScoredBy("1", 1.0)


@pytest.mark.parametrize(
    ("slot", "epoch", "kind"), [(1, 2, "Conflict"), (0, 1, "Conflict"), (0, 2, "Internal")]
)
def test_a_plan_that_makes_no_sense_is_refused(
    serving: RunningWorker, tmp_path: Path, slot: int, epoch: int, kind: str
) -> None:
    state = state_of(scale_plan(tmp_path, 2), served=[9], default=9)
    serving.say(Prepare("m", slot, epoch, state))

    assert serving.hear(CannotPrepare).kind == kind
    assert serving.score() == ScoredBy("1", 1.0)


def test_an_unknown_backend_is_refused(serving: RunningWorker, tmp_path: Path) -> None:
    other = msgspec.structs.replace(GROUP, backend="abacus")
    serving.say(Prepare("m", 0, 2, state_of(scale_plan(tmp_path, 2), group=other)))

    assert serving.hear(CannotPrepare).kind == "InvalidInput"


# --- processes that come and go -------------------------------------------------------------------


def test_without_a_supervisor_it_serves_on_and_tells_the_next_one_what_it_has(
    serving: RunningWorker, tmp_path: Path
) -> None:
    state = state_of(scale_plan(tmp_path, 2))
    serving.prepare(2, state)
    serving.supervisor.close()
    assert serving.score() == ScoredBy("1", 1.0)
    serving.words.store(0, 2)
    assert serving.score() == ScoredBy("2", 2.0)

    hello = serving.new_supervisor()

    assert hello.is_open
    assert hello.models["m"].epochs == (2,)
    assert hello.models["m"].state == state
    serving.switch(3, state_of(scale_plan(tmp_path, 3)))
    assert serving.score() == ScoredBy("3", 3.0)


def test_what_a_lost_supervisor_was_waiting_for_is_not_told_to_the_next_one(
    serving: RunningWorker, tmp_path: Path
) -> None:
    serving.say(Prepare("m", 0, 2, state_of(scale_plan(tmp_path, 2))))
    serving.new_supervisor()
    serving.prepare(3, state_of(scale_plan(tmp_path, 3)))

    assert not serving.has_said(Ack)


def test_doors_that_fail_to_open_for_whatever_reason_end_it(tmp_path: Path) -> None:
    no_socket = os.open(os.devnull, os.O_RDONLY)
    try:
        with started_worker(tmp_path, given={"inbox": no_socket}) as worker:
            worker.hear(Hello)
            worker.say(Joined())

            assert worker.exit_code() == 1
            assert '"event":"internal_error"' in worker.log.read_text()
    finally:
        os.close(no_socket)


def test_a_port_that_cannot_be_listened_on_ends_it(tmp_path: Path) -> None:
    with started_worker(tmp_path, grpc_host="192.0.2.1") as worker:
        worker.hear(Hello)
        worker.say(Joined())

        assert worker.exit_code() == 1
        assert '"event":"cannot_open"' in worker.log.read_text()


def test_a_malformed_message_ends_the_channel_and_nothing_else(serving: RunningWorker) -> None:
    serving.socket.send(b"\x93no message")
    with pytest.raises(AssertionError, match="closed its channel"):
        serving.hear(Pong)

    assert serving.score() == ScoredBy("1", 1.0)
    assert serving.new_supervisor().is_open


def test_without_a_launcher_it_drains_and_exits(serving: RunningWorker) -> None:
    serving.launcher.close()

    assert serving.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(serving: RunningWorker, number: signal.Signals) -> None:
    serving.kill(number)

    assert serving.exit_code() == 0


def test_it_may_be_told_to_drain_before_it_joined(worker: RunningWorker) -> None:
    worker.hear(Hello)
    worker.launcher.send(Drain())

    assert worker.exit_code() == 0


def test_draining_answers_on_and_is_not_ready(tmp_path: Path) -> None:
    with started_worker(tmp_path, "drain_s=30") as worker:
        worker.hear(Hello)
        worker.switch(1, state_of(scale_plan(tmp_path, 1)))
        worker.join()
        with steady_requests(worker) as answers:
            worker.launcher.send(Drain())
            wait_until(lambda: not worker.is_ready())
            seen = len(answers)
            wait_until(lambda: len(answers) > seen + 3)
            worker.switch(2, state_of(scale_plan(tmp_path, 2)))
            wait_until(lambda: answers[-1].version == "2")

        assert worker.exit_code(20) == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with started_worker(tmp_path, "drain_s=30") as worker:
        worker.hear(Hello)
        worker.switch(1, state_of(scale_plan(tmp_path, 1)))
        worker.join()
        with steady_requests(worker, until_refused=True):
            worker.launcher.send(Drain())
            wait_until(lambda: not worker.is_ready())
            worker.kill(signal.SIGTERM)
            worker.say(Ping(1))
            worker.hear(Pong)
            worker.kill(signal.SIGTERM)
            assert worker.exit_code(20) == 1


def test_kill_leaves_nothing_behind(serving: RunningWorker, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    serving.say(Prepare("m", 0, 2, state_of(scale_plan(tmp_path / "new", 2))))
    serving.kill(signal.SIGKILL)

    assert serving.exit_code() == -signal.SIGKILL
    left = {path for path in tmp_path.rglob("*") if tmp_path / "new" not in [path, *path.parents]}
    assert left == before


# --- small questions ------------------------------------------------------------------------------


def test_a_ping_is_answered(worker: RunningWorker) -> None:
    worker.say(Ping(42))

    assert worker.hear(Pong) == Pong(42)


def test_gauges_are_brought_up_to_date(serving: RunningWorker) -> None:
    serving.score()

    assert serving.gauge("anabranch_queue_requests") == 0.0
    assert serving.gauge("anabranch_requests_in_flight") == 0.0
    assert serving.gauge("anabranch_rows_total") == 1.0


def test_the_log_can_be_changed(serving: RunningWorker) -> None:
    serving.score()
    serving.say(SetLog(access=True))
    serving.say(Ping(1))
    serving.hear(Pong)
    serving.score()
    serving.say(SetLog(level="error", access=True))
    serving.say(Ping(2))
    serving.hear(Pong)
    serving.score()

    lines = [msgspec.json.decode(line) for line in serving.log.read_text().splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["model"] for line in requests] == ["m"]


def test_supervisors_that_come_and_go_leave_no_descriptor_behind(serving: RunningWorker) -> None:
    serving.new_supervisor()
    descriptors = serving.figures()[0]
    for _ in range(5):
        serving.new_supervisor()

    assert serving.figures()[0] == descriptors


@contextmanager
def steady_requests(
    worker: RunningWorker, *, until_refused: bool = False
) -> Iterator[list[ScoredBy]]:
    """Score one request after the other during the block; yields the answers so far."""
    answers: list[ScoredBy] = []
    errors: list[Exception] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                answers.append(worker.score())
            except Exception as error:
                errors.append(error)
                return

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        over.set()
        thread.join()
    assert until_refused or not errors, errors


def wait_until(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Look again and again until it holds."""
    end_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end_s, "it does not hold"
        time.sleep(0.01)
