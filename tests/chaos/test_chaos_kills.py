"""Processes die under load: only what a killed worker had accepted fails, and all comes back."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch_testing.server_processes import ServerProcesses, wait_until
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.telling_models import publish_telling
from chaos import MODEL, Rules, Victim, kill_at_random, request_of
from openloop import Background, HttpTransport, Plan

WORKERS = 3
DRAIN_S = 1.0


@dataclass(frozen=True)
class Stage:
    server: RunningServer
    repository: Path


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    repository = tmp_path / "models"
    repository.mkdir()
    publish_telling(repository / MODEL, 1)
    (repository / MODEL / "serving.yaml").write_text(
        "format: 1\nqueue: {default_timeout_ms: 20000}\n"
    )
    (tmp_path / "server").mkdir()
    with started_server(
        repository, tmp_path / "server", "--workers", str(WORKERS), "--drain-s", str(DRAIN_S)
    ) as server:
        yield Stage(server, repository)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "supervisor", "loader"])
def test_a_killed_process_costs_nothing_but_what_it_had_accepted(
    stage: Stage, victim: Victim
) -> None:
    rules = Rules([victim], seconds=8.0, rate=100.0, pause_s=2.0)

    outcome = kill_at_random(stage.server, stage.repository, WORKERS, rules)

    assert outcome.kills
    assert outcome.complaints == ()
    assert outcome.result.counts.ok.count > 500
    assert outcome.versions > 1
    if victim != "worker":
        assert outcome.result.counts.failed == 0


@pytest.mark.slow
def test_without_a_launcher_workers_drain_and_everything_ends(stage: Stage) -> None:
    processes = ServerProcesses(stage.server.process.pid)
    pids = list(processes.all())
    plan = Plan(rate=100, seconds=3600, connections=8, timeout_s=20.0)
    transport = HttpTransport(stage.server.http)

    with Background(plan, transport, [request_of(stage.server.http)]) as load:
        time.sleep(0.5)  # some load; nothing depends on how much
        os.kill(stage.server.process.pid, signal.SIGKILL)
        stage.server.process.wait()
        try:
            wait_until(lambda: not any(map(is_alive, pids)), DRAIN_S + 10.0, "all ended")
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    if is_alive(pid):
                        os.kill(pid, signal.SIGKILL)
        load.finish()

    for address in (stage.server.http, stage.server.grpc, stage.server.metrics, stage.server.admin):
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
