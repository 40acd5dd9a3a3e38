"""Processes die under load: only what a killed worker had accepted fails, and all comes back."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from anabranch_testing.lengths import length
from anabranch_testing.server_processes import ServerProcesses, wait_until
from anabranch_testing.servers import RunningServer
from chaos import (
    DELTAS,
    REWRITTEN,
    TABLED,
    TELLING,
    Rules,
    Subject,
    Victim,
    forgotten,
    kill_at_random,
    requests_of,
    staged_server,
)
from openloop import Background, HttpTransport, Plan

WORKERS = 3
DRAIN_S = 1.0


OPTIONS = ("--workers", str(WORKERS), "--drain-s", str(DRAIN_S))

pytestmark = pytest.mark.alone


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with staged_server(TELLING, tmp_path, *OPTIONS) as (server, _):
        yield server


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("victim", ["worker", "supervisor", "loader"])
def test_a_killed_process_costs_nothing_but_what_it_had_accepted(
    tmp_path: Path, victim: Victim
) -> None:
    rules = Rules([victim], seconds=length(6, 60), rate=100.0, pause_s=2.0, publish_s=1.0)

    with staged_server(TELLING, tmp_path, *OPTIONS) as (server, repository):
        outcome = kill_at_random(server, TELLING, repository, WORKERS, rules)

    assert outcome.kills
    assert outcome.complaints == ()
    assert outcome.result.counts.ok.count > 55 * rules.seconds
    assert outcome.versions > 1
    if victim != "worker":
        assert outcome.result.counts.failed == 0


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("subject", [TABLED, REWRITTEN], ids=["tables", "rows"])
def test_rows_and_weights_of_an_answer_are_of_one_version_whoever_is_killed(
    tmp_path: Path, subject: Subject
) -> None:
    victims: list[Victim] = ["worker", "supervisor", "loader"]
    rules = Rules(victims, seconds=length(9, 90), rate=100.0, pause_s=2.0, publish_s=1.0)

    with staged_server(subject, tmp_path, *OPTIONS) as (server, repository):
        outcome = kill_at_random(server, subject, repository, WORKERS, rules)

    assert outcome.kills
    assert outcome.complaints == ()
    assert outcome.result.counts.ok.count > 50 * rules.seconds
    assert outcome.versions > 1
    assert bool(outcome.marker) == bool(subject.markers)


@pytest.mark.slow
@pytest.mark.soak
def test_no_delta_is_mixed_or_lost_whoever_is_killed_and_whatever_is_damaged(
    tmp_path: Path,
) -> None:
    victims: list[Victim] = ["worker", "supervisor", "loader", "publisher"]
    rules = Rules(victims, seconds=length(20, 3600), rate=100.0, pause_s=2.0)

    with staged_server(DELTAS, tmp_path, *OPTIONS) as (server, repository):
        outcome = kill_at_random(server, DELTAS, repository, WORKERS, rules)

    assert outcome.kills
    assert outcome.complaints == ()
    assert outcome.result.counts.ok.count > 50 * rules.seconds
    assert outcome.published is not None
    assert outcome.published.kinds["good"] > rules.seconds / 4
    assert list(forgotten(DELTAS, tmp_path, outcome.published, *OPTIONS)) == []


@pytest.mark.slow
def test_without_a_launcher_workers_drain_and_everything_ends(server: RunningServer) -> None:
    processes = ServerProcesses(server.process.pid)
    pids = list(processes.all())
    plan = Plan(rate=100, seconds=3600, connections=8, timeout_s=20.0)
    transport = HttpTransport(server.http)

    with Background(plan, transport, requests_of(TELLING, server.http)) as load:
        time.sleep(0.5)  # some load; nothing depends on how much
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        try:
            wait_until(lambda: not any(map(is_alive, pids)), DRAIN_S + 10.0, "all ended")
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    if is_alive(pid):
                        os.kill(pid, signal.SIGKILL)
        load.finish()

    for address in (server.http, server.grpc, server.metrics, server.admin):
        host, _, port = address.rpartition(":")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
