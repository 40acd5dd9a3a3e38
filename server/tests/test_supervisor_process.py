"""A whole server whose processes are killed: what is served is served on, and all come back."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from anabranch_publish import publish_version
from anabranch_testing import new_connections
from anabranch_testing.graphs import scale_model
from anabranch_testing.processes.mortal_supervisor import STEPS
from anabranch_testing.servers import RunningServer, started_server

OPTIONS = ("--workers", "2", "--poll-s", "0.1")
REQUEST = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scale_model(tmp_path_factory.mktemp("trained")).path


@pytest.fixture
def repository(tmp_path: Path, onnx: Path) -> Path:
    (tmp_path / "repository").mkdir()
    publish_version(tmp_path / "repository" / "ctr", onnx, version=1)
    return tmp_path / "repository"


@pytest.fixture
def server(repository: Path) -> Iterator[RunningServer]:
    scratch = repository.parent / "scratch"
    scratch.mkdir()
    module = "anabranch_testing.processes.mortal"
    with started_server(repository, scratch, *OPTIONS, module=module) as running:
        yield running


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Wait until something is so; the server being away for a moment is not."""
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except (httpx.HTTPError, FileNotFoundError):
            pass
        assert time.monotonic() < end_s, f"not in {timeout_s} s: {what}"
        time.sleep(0.02)


def ready(server: RunningServer) -> dict[str, object]:
    """Return what the ready file says now."""
    content: dict[str, object] = json.loads((server.log.parent / "ready.json").read_bytes())
    return content


def events(server: RunningServer) -> list[str]:
    """Return the events of the log."""
    lines = server.log.read_text().splitlines()
    return [json.loads(line)["event"] for line in lines if line.startswith("{")]


def metric(server: RunningServer, line: str) -> float:
    """Return a value of the metrics port; 0 where it is not there."""
    text = new_connections.get(f"http://{server.metrics}/metrics", timeout=10).text
    values = [one.split()[-1] for one in text.splitlines() if one.startswith(f"{line} ")]
    return float(values[0]) if values else 0.0


def is_ready(server: RunningServer) -> bool:
    """Ask the probe of the metrics port."""
    return (
        new_connections.get(f"http://{server.metrics}/health/ready", timeout=10).status_code == 200
    )


class Caller:
    """Scores again and again, each time on a new connection.

    Attributes:
        versions: that answered, in their order.
        failures: what went wrong otherwise.
    """

    def __init__(self, server: RunningServer) -> None:
        self._url = f"http://{server.http}/v2/models/ctr/infer"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.versions: list[int] = []
        self.failures: list[str] = []

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                answer = new_connections.post(self._url, json=REQUEST, timeout=20)
                if answer.status_code == 200:
                    self.versions.append(int(answer.json()["model_version"]))
                else:
                    self.failures.append(answer.text)
            except httpx.HTTPError as error:
                self.failures.append(repr(error))

    def __enter__(self) -> "Caller":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def test_a_killed_worker_is_replaced_and_what_it_counted_stays(server: RunningServer) -> None:
    for _ in range(10):
        new_connections.post(
            f"http://{server.http}/v2/models/ctr/infer", json=REQUEST
        ).raise_for_status()
    rows = 'anabranch_rows_total{model="ctr",version="1"}'
    assert metric(server, rows) == 10
    first, second = (int(str(pid)) for pid in _workers(server))

    os.kill(first, signal.SIGKILL)

    wait_for(lambda: first not in _workers(server) and len(_workers(server)) == 2, "another one")
    assert second in _workers(server)
    assert is_ready(server)
    assert metric(server, rows) == 10
    assert metric(server, 'anabranch_worker_restarts_total{reason="exited"}') == 1
    workers = new_connections.get(f"http://{server.admin}/admin/v1/workers").json()["workers"]
    assert [worker["restarts"] for worker in workers] == [1, 0]
    assert [worker["snapshots"] for worker in workers] == [{"ctr": "1"}] * 2
    new_connections.post(
        f"http://{server.http}/v2/models/ctr/infer", json=REQUEST
    ).raise_for_status()


def test_a_killed_supervisor_costs_no_request_and_forgets_nothing(
    server: RunningServer, repository: Path, onnx: Path
) -> None:
    before = ready(server)
    totals = server.log.parent / "run" / "totals"
    wait_for(lambda: b"anabranch_reloads_total" in totals.read_bytes(), "totals")
    with Caller(server) as caller:
        os.kill(int(str(before["supervisor"])), signal.SIGKILL)
        wait_for(lambda: ready(server)["supervisor"] != before["supervisor"], "another supervisor")
        publish_version(repository / "ctr", onnx, version=2)
        wait_for(lambda: 2 in caller.versions[-1:], "version 2")

    assert caller.failures == []
    assert caller.versions == sorted(caller.versions)
    after = ready(server)
    assert (after["workers"], after["seconds"]) == (before["workers"], before["seconds"])
    assert metric(server, 'anabranch_reloads_total{kind="version",model="ctr",result="ok"}') == 2
    assert is_ready(server)
    assert "adopted" in events(server)
    assert server.stop() == 0


@pytest.mark.parametrize("step", STEPS)
def test_a_supervisor_killed_in_a_switch(
    server: RunningServer, repository: Path, onnx: Path, step: str
) -> None:
    """Whatever the step, the switch is done in the end, and nobody sees an older version again."""
    before = ready(server)
    order = server.log.parent / "run" / "die_at"
    with Caller(server) as caller:
        wait_for(lambda: bool(caller.versions), "an answer")
        order.write_text(step)
        publish_version(repository / "ctr", onnx, version=2)
        wait_for(lambda: ready(server)["supervisor"] != before["supervisor"], "another supervisor")
        wait_for(lambda: 2 in caller.versions[-1:], "version 2")

    assert not order.exists()
    assert caller.failures == []
    assert caller.versions == sorted(caller.versions)
    wait_for(lambda: _served(server) == [{"ctr": "2"}] * 2, "version 2 in both workers")
    assert ready(server)["workers"] == before["workers"]


def test_a_hung_worker_is_killed_and_replaced(repository: Path) -> None:
    scratch = repository.parent / "scratch"
    scratch.mkdir()
    settings = scratch / "anabranch.yaml"
    settings.write_text("switch:\n  stall_s: 3\n")
    with started_server(repository, scratch, *OPTIONS, "--config", str(settings)) as server:
        hung = int(str(_workers(server)[0]))

        os.kill(hung, signal.SIGSTOP)

        wait_for(lambda: hung not in _workers(server) and len(_workers(server)) == 2, "another one")
        assert metric(server, 'anabranch_worker_restarts_total{reason="unresponsive"}') == 1
        assert is_ready(server)


def test_when_all_are_killed_but_the_launcher_it_is_a_start_like_the_first(
    server: RunningServer,
) -> None:
    before = ready(server)
    for pid in (before["supervisor"], *_workers(server)):
        os.kill(int(str(pid)), signal.SIGKILL)

    def answers() -> bool:
        probe = new_connections.get(f"http://{server.http}/v2/health/ready", timeout=10)
        answer = new_connections.post(
            f"http://{server.http}/v2/models/ctr/infer", json=REQUEST, timeout=10
        )
        assert answer.status_code in (200, 503), answer.text
        assert probe.status_code == 503 or answer.status_code == 200
        return answer.status_code == 200

    wait_for(answers, "an answer")
    wait_for(lambda: is_ready(server) and len(_workers(server)) == 2, "readiness")
    assert ready(server)["supervisor"] != before["supervisor"]
    assert server.stop() == 0


def test_a_killed_launcher_ends_everything(server: RunningServer) -> None:
    now = ready(server)
    pids = [now["supervisor"], *_workers(server)]

    server.process.send_signal(signal.SIGKILL)

    wait_for(lambda: not any(_is_alive(int(str(pid))) for pid in pids), "the end of all processes")
    assert events(server).count("stopped") == 3


def _workers(server: RunningServer) -> list[object]:
    workers = ready(server)["workers"]
    assert isinstance(workers, list)
    return workers


def _served(server: RunningServer) -> list[object]:
    workers = new_connections.get(f"http://{server.admin}/admin/v1/workers", timeout=10).json()[
        "workers"
    ]
    return [worker["snapshots"] for worker in workers]


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
