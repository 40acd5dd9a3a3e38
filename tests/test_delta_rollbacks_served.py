"""Going back to a delta of a started server: held there, over restarts too, until released."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest

from anabranch_publish import Publisher, publish_version
from anabranch_testing import new_connections
from anabranch_testing.graphs import write_graph
from anabranch_testing.server_processes import wait_until
from anabranch_testing.servers import RunningServer, started_server

ROWS, DIM = 64, 4
PATIENCE_S = 60.0
GRAPH = """
scored (int64[N] item) => (float[N, 1] score)
<float[4, 1] w = {1.0, 1.0, 1.0, 1.0}>
{ rows = Gather(table, item) score = MatMul(rows, w) }
"""
BODY = {"inputs": [{"name": "item", "datatype": "INT64", "shape": [ROWS], "data": [*range(ROWS)]}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = write_graph(tmp_path / "graph", GRAPH)
    model = onnx.load(path)
    values = np.zeros((ROWS, DIM), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "table"))
    onnx.save(model, path)
    (tmp_path / "model.yaml").write_text("optimize: {min_table_bytes: 0}\n")
    (tmp_path / "repository").mkdir()
    (tmp_path / "scratch").mkdir()
    publish_version(
        tmp_path / "repository" / "ctr", path, version=1, model_yaml=tmp_path / "model.yaml"
    )
    return tmp_path


def publish(folder: Path) -> int:
    """Publish the next delta: all rows are full of its number, and every second also doubles."""
    with Publisher(folder / "repository" / "ctr", version=1) as publisher:
        newest = publisher.newest()
        number = 1 if newest is None else newest.sequence + 1
        draft = publisher.delta()
        draft.upsert("table", np.arange(ROWS), np.full((ROWS, DIM), number, np.float32))
        draft.dense({"w": np.full((DIM, 1), 1 + number % 2, np.float32)})
        assert draft.publish() == number
    return number


def scores_at(delta: int) -> set[float]:
    """Return what every item scores at a delta."""
    return {float(DIM * delta * (1 + delta % 2))}


@contextmanager
def running(folder: Path) -> Iterator[RunningServer]:
    (folder / "scratch" / "ready.json").unlink(missing_ok=True)
    options = ("--workers", "2", "--poll-s", "0.2")
    with started_server(folder / "repository", folder / "scratch", *options) as server:
        yield server


def is_at(server: RunningServer, delta: int) -> bool:
    """Whether ten new connections, which both workers get, are answered from that delta alone."""
    for _ in range(10):
        answer = new_connections.post(
            f"http://{server.http}/v2/models/ctr/infer", json=BODY, timeout=60
        )
        answer.raise_for_status()
        found = int(answer.headers["Anabranch-Delta"])
        assert set(answer.json()["outputs"][0]["data"]) == scores_at(found)
        if found != delta:
            return False
    return True


def wait_at(server: RunningServer, delta: int) -> None:
    wait_until(lambda: is_at(server, delta), PATIENCE_S, f"delta {delta} is served")


def model(server: RunningServer) -> dict[str, Any]:
    view: dict[str, Any] = new_connections.get(f"http://{server.admin}/admin/v1/models/ctr").json()
    return view


def act(server: RunningServer, action: str, **body: object) -> dict[str, Any]:
    answer = new_connections.post(
        f"http://{server.admin}/admin/v1/models/ctr/{action}",
        json={"wait_s": 60, **body},
        timeout=90,
    )
    answer.raise_for_status()
    operation: dict[str, Any] = answer.json()
    assert operation["state"] == "DONE", operation
    return operation


def test_a_rollback_to_a_delta_holds_over_new_ones_and_restarts_until_it_is_released(
    folder: Path,
) -> None:
    with running(folder) as server:
        for _ in range(3):
            wait_at(server, publish(folder))

        act(server, "rollback")
        assert is_at(server, 2)
        act(server, "rollback", version=1, delta=1)
        assert is_at(server, 1)
        assert model(server)["pinned"] == "1+1"

        publish(folder)
        act(server, "reload")
        assert is_at(server, 1)

    with running(folder) as server:
        assert server.ready["models"] == {"ctr": "1+1"}
        assert is_at(server, 1)
        assert model(server)["pinned"] == "1+1"

        act(server, "unpin")
        wait_at(server, 4)
        assert model(server)["pinned"] is None
        wait_at(server, publish(folder))


def test_the_version_as_published_and_deltas_ahead_are_gone_to_as_well(folder: Path) -> None:
    for _ in range(3):
        publish(folder)
    with running(folder) as server:
        assert is_at(server, 3)

        act(server, "rollback", version=1, delta=0)
        assert is_at(server, 0)
        act(server, "rollback", version=1, delta=2)
        assert is_at(server, 2)

        printed = subprocess.run(
            [sys.executable, "-m", "anabranch_server", "rollback", "ctr", "--version", "1+1",
             "--admin", f"http://{server.admin}", "--json"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert json.loads(printed)["state"] == "DONE"
        assert is_at(server, 1)

        act(server, "reload", unpin=True)
        wait_at(server, 3)


def test_a_hold_outlives_every_process(folder: Path) -> None:
    with running(folder) as server:
        for _ in range(2):
            wait_at(server, publish(folder))
        act(server, "rollback", version=1, delta=1)
        ready = json.loads((folder / "scratch" / "ready.json").read_bytes())

        os.kill(ready["supervisor"], signal.SIGKILL)

        def is_back() -> bool:
            try:
                return bool(model(server)["state"] == "READY")
            except httpx.HTTPError:
                return False

        wait_until(is_back, PATIENCE_S, "another supervisor answers")
        assert is_at(server, 1)
        assert model(server)["pinned"] == "1+1"
        os.kill(server.workers[0], signal.SIGKILL)
        os.kill(server.workers[1], signal.SIGKILL)

        def are_back() -> bool:
            shown = new_connections.get(f"http://{server.admin}/admin/v1/workers").json()["workers"]
            return len(shown) == 2 and all(
                one["state"] == "serving" and one["pid"] not in server.workers for one in shown
            )

        wait_until(are_back, PATIENCE_S, "other workers serve")
        assert is_at(server, 1)
        act(server, "unpin")
        wait_at(server, 2)


def test_a_delta_that_is_not_there_is_no_place_to_go_to(folder: Path) -> None:
    with running(folder) as server:
        wait_at(server, publish(folder))

        answer = new_connections.post(
            f"http://{server.admin}/admin/v1/models/ctr/rollback",
            json={"version": 1, "delta": 7, "wait_s": 60},
            timeout=90,
        )

        told = answer.json()
        assert answer.status_code == 404 or told["state"] == "FAILED"
        assert "7" in told["error"]
        assert is_at(server, 1)
        assert model(server)["pinned"] is None
