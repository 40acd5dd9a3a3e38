import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from anabranch_server.launcher import Programs, RestartPolicy
from anabranch_server.ports import claim
from anabranch_server.processes.board import BalanceLayout
from anabranch_testing.lengths import length
from anabranch_testing.processes.stage import ACTOR, Stage, staged_launcher
from anabranch_wire.errors import Conflict

BRIEF = "anabranch_testing.processes.brief"
FAILING = "anabranch_testing.processes.failing"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged_launcher(tmp_path) as running:
        yield running


def started(stage: Stage) -> None:
    """Wait until the supervisor knows both workers."""
    supervisor = stage.actor("supervisor.1")
    for index in range(2):
        stage.actor(f"worker {index}.1")
        supervisor.hear_of("Hello", of=f"worker {index}")


def test_everybody_gets_what_is_theirs_and_meets_the_others(stage: Stage) -> None:
    supervisor = stage.actor("supervisor.1")
    worker = stage.actor("worker 1.1")

    assert supervisor.opening["names"] == ["admin", "balance", "epochs", "launcher", "metrics"]
    assert worker.opening["names"] == [
        "balance", "epochs", "inbox", "launcher", "outbox0", "supervisor",
    ]  # fmt: skip
    addresses = worker.opening["addresses"]
    assert sorted(addresses) == ["admin", "admin_grpc", "grpc", "http", "metrics"]
    assert len({port for _, port in addresses.values()}) == 5
    assert worker.opening["launcher"] == stage.process.pid
    assert worker.opening["run_dir"] == str(stage.scratch / f"run-{addresses['http'][1]}")
    assert os.getpgid(worker.pid) == worker.pid
    assert os.getsid(worker.pid) == os.getsid(stage.process.pid)
    started(stage)


def test_a_stop_drains_everybody_and_leaves_nothing(stage: Stage) -> None:
    started(stage)
    run_dir = Path(stage.actor("supervisor.1").opening["run_dir"])
    assert run_dir.is_dir()
    (run_dir / "ready.json").write_text("left behind")

    stage.signal(signal.SIGINT)

    for name in ("supervisor.1", "worker 0.1", "worker 1.1"):
        stage.actor(name).hear_of("Drain", of="launcher")
    assert stage.exit_code() == 0
    assert not run_dir.exists()
    assert [line["worker"] for line in stage.events()] == ["launcher"] * len(stage.events())
    assert stage.events()[-1]["event"] == "stopped"


def test_who_does_not_end_in_time_is_killed(tmp_path: Path) -> None:
    with staged_launcher(tmp_path, drain_s=0.1) as stage:
        started(stage)
        stage.actor("worker 0.1").ask("stay")

        stage.signal()

        assert stage.exit_code() == 0
        (killed,) = [line for line in stage.events() if line["event"] == "process_killed"]
        assert killed["who"] == "worker 0"


def test_a_second_signal_ends_everything_at_once(stage: Stage) -> None:
    started(stage)
    actors = [stage.actor(name) for name in ("supervisor.1", "worker 0.1", "worker 1.1")]
    for actor in actors:
        actor.ask("stay")

    stage.signal()
    for actor in actors:
        actor.hear_of("Drain", of="launcher")
    stage.signal_until_it_ends()

    assert stage.exit_code() == 1
    assert all(actor.has_left() for actor in actors)
    assert {e["signal"] for e in stage.events() if e["event"] == "process_ended"} == {9}


def test_a_terminal_that_is_closed_drains(stage: Stage) -> None:
    started(stage)

    stage.signal(signal.SIGHUP)

    assert stage.exit_code() == 0


def test_signals_that_come_together_are_one(stage: Stage) -> None:
    started(stage)

    stage.signal()
    stage.signal()

    assert stage.exit_code() == 0


@pytest.mark.parametrize("how", ["killed", "exited"])
def test_a_worker_that_ends_is_started_again_and_brought_to_the_supervisor(
    stage: Stage, how: str
) -> None:
    started(stage)
    supervisor, worker = stage.actor("supervisor.1"), stage.actor("worker 1.1")
    supervisor.ask("serve")

    if how == "killed":
        os.kill(worker.pid, signal.SIGKILL)
    else:
        worker.tell("exit", code=5)

    supervisor.hear_of(None, of="worker 1")
    supervisor.hear_of("Attached", of="launcher")
    supervisor.hear_of("Hello", of="worker 1")
    assert stage.actor("worker 1.2").opening["incarnation"] == 2
    stage.signal()
    assert stage.exit_code() == 0


def test_a_supervisor_that_ends_is_started_again_and_brought_to_the_workers(stage: Stage) -> None:
    started(stage)
    before = stage.actor("supervisor.1")
    before.tell("load")
    loader = stage.actor("loader.1")

    os.kill(before.pid, signal.SIGKILL)

    after = stage.actor("supervisor.2")
    for index in range(2):
        worker = stage.actor(f"worker {index}.1")
        worker.hear_of(None, of="supervisor")
        worker.hear_of("NewSupervisor", of="launcher")
        after.hear_of("Hello", of=f"worker {index}")
    assert loader.has_left()
    # And a worker that comes now finds the new one.
    os.kill(stage.actor("worker 0.1").pid, signal.SIGKILL)
    after.hear_of("Hello", of="worker 0")


def test_a_loader_is_started_when_asked_for_and_not_again(stage: Stage) -> None:
    started(stage)
    supervisor = stage.actor("supervisor.1")

    supervisor.tell("load")
    supervisor.hear_of("LoaderAttached", of="launcher")
    stage.actor("loader.1").tell("exit", code=1)
    supervisor.hear_of(None, of="loader")
    supervisor.tell("load")
    supervisor.hear_of("LoaderAttached", of="launcher")

    assert stage.actor("loader.2").opening["names"] == ["supervisor"]
    # Asked for while one runs: that one was given up.
    supervisor.tell("load")
    assert stage.actor("loader.2").has_left()
    stage.actor("loader.3")
    # Nobody need look into it: the supervisor says where a version was at fault.
    ended = [event for event in stage.events() if event["event"] == "process_ended"]
    assert {end["level"] for end in ended if end["signal"] == signal.SIGKILL} == {"info"}


def test_a_loader_beside_requests_gives_way_from_the_start(stage: Stage) -> None:
    started(stage)
    supervisor = stage.actor("supervisor.1")
    usual = os.getpriority(os.PRIO_PROCESS, supervisor.pid)

    for number, gives_way in enumerate([False, True, False], 1):
        supervisor.tell("load", gives_way=gives_way)
        supervisor.hear_of("LoaderAttached", of="launcher")
        nice = os.getpriority(os.PRIO_PROCESS, stage.actor(f"loader.{number}").pid)
        assert (nice > usual) == gives_way


def test_loaders_of_versions_and_of_deltas_come_and_go_alone(stage: Stage) -> None:
    started(stage)
    supervisor = stage.actor("supervisor.1")
    supervisor.tell("load")
    supervisor.hear_of("LoaderAttached", of="launcher")
    supervisor.tell("load", purpose="deltas")
    supervisor.hear_of("LoaderAttached", of="launcher")
    versions, deltas = stage.actor("loader.1"), stage.actor("delta loader.1")

    supervisor.tell("load", purpose="deltas")  # that one was given up

    assert deltas.has_left()
    after = stage.actor("delta loader.2")
    os.kill(versions.pid, 0)  # that one lives
    # Nobody waits for what they find once the supervisor has gone.
    os.kill(supervisor.pid, signal.SIGKILL)
    stage.actor("supervisor.2")
    assert versions.has_left()
    assert after.has_left()


def test_a_stop_ends_loaders_of_both_kinds(stage: Stage) -> None:
    started(stage)
    supervisor = stage.actor("supervisor.1")
    for purpose in ("versions", "deltas"):
        supervisor.tell("load", purpose=purpose)
        supervisor.hear_of("LoaderAttached", of="launcher")
    loaders = [stage.actor("loader.1"), stage.actor("delta loader.1")]

    stage.signal()

    assert stage.exit_code() == 0
    assert all(loader.has_left() for loader in loaders)


def test_who_sends_what_is_no_message_is_killed(stage: Stage) -> None:
    started(stage)
    supervisor = stage.actor("supervisor.1")

    supervisor.tell("babble")

    supervisor.hear_of(None, of="launcher")
    assert [e["who"] for e in stage.wait_for_event("process_killed")] == ["supervisor"]
    stage.actor("supervisor.2")


def test_pages_and_inboxes_outlive_their_processes(stage: Stage) -> None:
    started(stage)
    supervisor = stage.actor("supervisor.1")
    first, second = stage.actor("worker 0.1"), stage.actor("worker 1.1")
    assert first.ask("balance") == {"balance": 1}
    assert first.ask("put", into=1) == {"put": 1}

    for actor in (supervisor, first, second):
        os.kill(actor.pid, signal.SIGKILL)

    assert stage.actor("worker 0.2").ask("balance") == {"balance": 2}
    assert stage.actor("worker 1.2").ask("take") == {"took": "from 0", "fds": 1}


def test_a_worker_that_ended_takes_no_connections(stage: Stage) -> None:
    started(stage)
    layout = BalanceLayout(2)
    for index in range(2):
        word = layout.accepting(index)
        assert stage.actor(f"worker {index}.1").ask("balance", word=word) == {"balance": 1}

    os.kill(stage.actor("worker 1.1").pid, signal.SIGKILL)

    after = stage.actor("worker 1.2")
    assert after.ask("balance", word=layout.accepting(0)) == {"balance": 2}
    assert after.ask("balance", word=layout.accepting(1)) == {"balance": 1}


def test_metrics_are_listened_on_again_by_the_next_supervisor(stage: Stage) -> None:
    started(stage)
    for incarnation in (1, 2, 3):
        supervisor = stage.actor(f"supervisor.{incarnation}")
        port = int(supervisor.ask("listen")["listening"])
        assert port == supervisor.opening["addresses"]["metrics"][1]
        for _ in range(20):  # a socket that listens and is not asked would swallow some
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                assert client.recv(1) == b""
        os.kill(supervisor.pid, signal.SIGKILL)
    with pytest.raises(Conflict):
        claim("127.0.0.1", port, "metrics")


@pytest.mark.parametrize("who", ["supervisor", "worker"])
def test_a_server_that_cannot_start_ends(tmp_path: Path, who: str) -> None:
    programs = Programs(FAILING, ACTOR, ACTOR) if who == "supervisor" else Programs(ACTOR, FAILING)
    with staged_launcher(tmp_path, programs) as stage:
        assert stage.exit_code() == 1
        (reason,) = [line for line in stage.events() if line["event"] == "cannot_start"]
        assert reason["who"].startswith(who)
        assert reason["code"] == 3


def test_who_fails_after_something_was_served_is_started_again(stage: Stage) -> None:
    started(stage)
    stage.actor("supervisor.1").ask("serve")

    stage.actor("supervisor.1").tell("exit", code=3)
    stage.actor("worker 0.1").tell("exit", code=3)

    stage.actor("supervisor.2")
    stage.actor("worker 0.2")


def test_ends_in_a_row_are_followed_later_and_later(tmp_path: Path) -> None:
    policy = RestartPolicy(first_delay_s=0.2, max_delay_s=10, healthy_s=1e9)
    with staged_launcher(tmp_path, Programs(ACTOR, BRIEF, ACTOR), policy, workers=1) as stage:
        begun = [float(e["ts"][17:23]) for e in stage.wait_for_event("process_started", 6)][1:]
        ended = [float(e["ts"][17:23]) for e in stage.wait_for_event("process_ended", 4)]
        waits = [(b - a) % 60 for a, b in zip(ended, begun[1:], strict=False)]
        for wait, delay in zip(waits, (0, 0.2, 0.4, 0.8), strict=True):
            assert delay - 0.005 <= wait < delay + 5  # the machine may be busy


def test_an_end_of_the_launcher_is_seen_by_all(stage: Stage) -> None:
    started(stage)

    stage.process.kill()

    for name in ("supervisor.1", "worker 0.1", "worker 1.1"):
        stage.actor(name).hear_of(None, of="launcher")


def fds_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def settled_fds_of(pid: int) -> int:
    """Descriptors of a process while nothing is being started."""
    counts = [fds_of(pid)]
    end = time.monotonic() + 30
    while len(counts) < 20 or len(set(counts[-20:])) > 1:
        assert time.monotonic() < end
        time.sleep(0.005)
        counts.append(fds_of(pid))
    return counts[-1]


@pytest.mark.slow
@pytest.mark.soak
def test_hundreds_of_restarts_leave_no_descriptor_open(tmp_path: Path) -> None:
    policy = RestartPolicy(first_delay_s=0, max_delay_s=0, healthy_s=1e9)
    with staged_launcher(tmp_path, Programs(ACTOR, BRIEF, ACTOR), policy, workers=4) as stage:
        stage.actor("supervisor.1")
        fewest = []
        for restarts in (40, length(120, 1000)):
            stage.wait_for_event("process_ended", restarts)
            # Somebody is always being started: the least of many looks is nearly what stays open.
            fewest.append(min(fds_of(stage.process.pid) for _ in range(5000)))
        assert fewest[1] < fewest[0] + 10  # one descriptor a restart would be 80 more
        stage.signal()
        assert stage.exit_code() == 0


def test_restarts_leave_no_descriptor_open(stage: Stage) -> None:
    started(stage)
    counts = []
    for incarnation in range(1, 6):
        for name in ("supervisor", "worker 0", "worker 1"):
            stage.actor(f"{name}.{incarnation}").ask("balance" if name != "supervisor" else "serve")
        supervisor = stage.actor(f"supervisor.{incarnation}")
        supervisor.tell("load")
        supervisor.hear_of("LoaderAttached", of="launcher")
        stage.actor(f"loader.{incarnation}")
        counts.append(settled_fds_of(stage.process.pid))
        for name in ("worker 1", "worker 0", "supervisor"):
            os.kill(stage.actor(f"{name}.{incarnation}").pid, signal.SIGKILL)
    assert all(before >= after for before, after in pairwise(counts)), counts


def test_the_first_process_of_a_container_reaps_orphans(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-p", "-f", "true"], check=False).returncode:
        pytest.skip("no process namespace can be made here")
    prefix = (unshare, "--pid", "--fork", "--mount-proc", "--kill-child")
    with staged_launcher(tmp_path, prefix=prefix) as stage:
        worker = stage.actor("worker 0.1")
        assert worker.opening["launcher"] == 1
        launcher = int(
            Path(f"/proc/{stage.process.pid}/task/{stage.process.pid}/children").read_text()
        )
        for _ in range(5):
            assert worker.ask("orphan") == {"orphaned": True}
        children = f"/proc/{launcher}/task/{launcher}/children"
        end = time.monotonic() + 30
        while len(Path(children).read_text().split()) != 3:  # a supervisor, two workers, no zombie
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(launcher, signal.SIGTERM)
        assert stage.exit_code() == 0
