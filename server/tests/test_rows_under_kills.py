"""Rows of a whole server change all the time while requests read them and processes are killed."""

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import pytest

from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_testing import new_connections
from anabranch_testing.lengths import length
from anabranch_testing.marked_rows import DIM, ROWS, TABLES, keys, write_marked_graph
from anabranch_testing.servers import RunningServer, started_server

_KILLS: Final = length(4, 60, "ANABRANCH_ROWS_KILLS")

_MODEL_YAML: Final = """format: 1
features:
  - {name: a, side: candidate, type: int64}
  - {name: b, side: candidate, type: int64}
lookups:
  - {feature: a, table: a, combiner: sum, output: {input: emb, columns: [0, 4]}}
  - {feature: b, table: b, combiner: sum, output: {input: emb, columns: [4, 8]}}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """Two workers, and supervisors that rewrite all rows again and again."""
    repository = tmp_path / "models"
    repository.mkdir()
    values = np.zeros((ROWS, DIM), np.float32)
    (tmp_path / "model.yaml").write_text(_MODEL_YAML)
    publish_version(
        repository / "m",
        write_marked_graph(tmp_path / "graph"),
        version=1,
        model_yaml=tmp_path / "model.yaml",
        tables={name: Rows(keys(index), values) for index, name in enumerate(TABLES)},
    )
    (tmp_path / "scratch").mkdir()
    with started_server(
        repository,
        tmp_path / "scratch",
        *("--workers", "2", "--poll-s", "0.2"),
        module="anabranch_testing.processes.rewriting",
    ) as running:
        yield running


@dataclass
class Seen:
    """What one caller saw: markers in their order, and answers of two markers."""

    markers: list[int] = field(default_factory=list)
    mixed: list[tuple[float, float]] = field(default_factory=list)
    failures: int = 0


@contextmanager
def callers(server: RunningServer, count: int = 3) -> Iterator[list[Seen]]:
    """Look rows up again and again, until the block ends."""
    stopping = threading.Event()
    seen = [Seen() for _ in range(count)]

    def call(mine: Seen) -> None:
        body = {
            "inputs": [
                {"name": name, "datatype": "INT64", "shape": [40, 1],
                 "data": keys(table)[:40].tolist()}
                for table, name in enumerate(TABLES)
            ]
        }  # fmt: skip
        while not stopping.is_set():
            try:
                answer = new_connections.post(f"http://{server.http}/v2/models/m/infer", json=body)
                outputs = {one["name"]: one["data"] for one in answer.json()["outputs"]}
            except (httpx.HTTPError, KeyError):
                mine.failures += 1
                time.sleep(0.01)
                continue
            low, high = min(outputs["low"]), max(outputs["high"])
            if low != high:
                mine.mixed.append((low, high))
            mine.markers.append(int(high))

    threads = [threading.Thread(target=call, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def processes(server: RunningServer) -> tuple[int, list[int]]:
    """Return the supervisor and the workers as the ready file names them now."""
    content = json.loads((server.log.parent / "ready.json").read_bytes())
    return int(content["supervisor"]), [int(pid) for pid in content["workers"]]


def marker(server: RunningServer) -> int:
    """Return the last marker that was decided."""
    (place,) = server.log.parent.glob("run*/marker")
    return int(place.read_text())


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Wait until something is so; files that are being replaced are looked at again."""
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except (OSError, ValueError, httpx.HTTPError):
            pass
        assert time.monotonic() < end_s, f"not in {timeout_s} s: {what}"
        time.sleep(0.05)


def mapped(pid: int) -> int:
    """Return how many generations a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "memfd:anabranch-generation" in line})


def check(seen: list[Seen]) -> None:
    """Check that no answer mixed markers, and that none went back."""
    for one in seen:
        assert one.mixed == []
        assert one.markers == sorted(one.markers)


def test_rows_change_under_load_and_nobody_sees_a_mixture(server: RunningServer) -> None:
    with callers(server) as seen:
        wait_for(lambda: marker(server) >= 40, "40 changes")
        wait_for(
            lambda: all(len(set(one.markers)) > 3 for one in seen), "every caller saw some of them"
        )

    check(seen)
    assert sum(one.failures for one in seen) == 0
    _, workers = processes(server)
    wait_for(lambda: max(map(mapped, workers)) <= 2, "old generations are unmapped")
    text = new_connections.get(f"http://{server.metrics}/metrics").text
    assert 'anabranch_store_lookups_total{model="m",table="a"}' in text
    rows = new_connections.get(
        f"http://{server.admin}/admin/v1/models/m/tables/a/rows?key=0"
    ).json()["rows"]
    assert rows[0]["found"]
    assert rows[0]["values"][0] > 0


@pytest.mark.slow
@pytest.mark.soak
def test_killed_workers_and_supervisors_cost_no_row(server: RunningServer) -> None:
    chance = random.Random(7)
    with callers(server) as seen:
        wait_for(lambda: marker(server) > 0, "rows change")
        for kill in range(_KILLS):
            before = marker(server)
            wait_for(lambda: marker(server) > before + 2, "rows change")  # noqa: B023
            supervisor, workers = processes(server)
            victim = supervisor if kill % 2 else chance.choice(workers)
            time.sleep(chance.random() * 0.3)
            os.kill(victim, signal.SIGKILL)
            wait_for(
                lambda: (
                    victim not in (known := processes(server))[1]  # noqa: B023
                    and victim != known[0]  # noqa: B023
                    and len(known[1]) == 2
                ),
                "another one",
            )
        last = marker(server)
        wait_for(lambda: marker(server) > last + 2, "rows change after the last kill")

    check(seen)
    assert all(one.markers[-1] > one.markers[0] for one in seen)
    _, workers = processes(server)
    wait_for(lambda: max(map(mapped, workers)) <= 2, "old generations are unmapped")
