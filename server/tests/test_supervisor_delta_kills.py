"""Deltas of rows and weights, and a supervisor that dies at each step of their switch."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import pytest

from anabranch_publish import Publisher, publish_version
from anabranch_publish.tables import Rows
from anabranch_testing.graphs import write_graph
from anabranch_testing.marked_rows import DIM, ROWS, TABLES, keys
from anabranch_testing.processes.mortal_supervisor import STEPS
from anabranch_testing.servers import RunningServer, started_server

_GRAPH: Final = (
    "marked (float[N, 8] emb) => (float[N, 1] low, float[N, 1] high, float[N, 1] told) "
    "<float[1, 1] w = {0.0}> {"
    " low = ReduceMin <axes = [1], keepdims = 1> (emb)"
    " high = ReduceMax <axes = [1], keepdims = 1> (emb)"
    " zero = Sub(low, low)"
    " told = Add(zero, w) }"
)
"""The least and the greatest number of the rows, and the weight; in a delta all are its number."""

_MODEL_YAML: Final = """format: 1
features:
  - {name: a, side: candidate, type: int64}
  - {name: b, side: candidate, type: int64}
lookups:
  - {feature: a, table: a, combiner: sum, output: {input: emb, columns: [0, 4]}}
  - {feature: b, table: b, combiner: sum, output: {input: emb, columns: [4, 8]}}
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Write version 1, of marker 0."""
    repository = tmp_path / "models"
    repository.mkdir()
    (tmp_path / "model.yaml").write_text(_MODEL_YAML)
    publish_version(
        repository / "m",
        write_graph(tmp_path / "graph", _GRAPH),
        version=1,
        model_yaml=tmp_path / "model.yaml",
        tables={
            name: Rows(keys(index), np.zeros((ROWS, DIM), np.float32))
            for index, name in enumerate(TABLES)
        },
    )
    return repository


@pytest.fixture
def server(repository: Path) -> Iterator[RunningServer]:
    scratch = repository.parent / "scratch"
    scratch.mkdir()
    options = ("--workers", "2", "--poll-s", "0.1")
    module = "anabranch_testing.processes.mortal"
    with started_server(repository, scratch, *options, module=module) as running:
        yield running


def publish(repository: Path, marker: int) -> int:
    """Publish a delta that gives all rows and the weight a marker."""
    with Publisher(repository / "m", 1) as publisher:
        delta = publisher.delta(step=marker)
        for index, name in enumerate(TABLES):
            delta.upsert(name, keys(index), np.full((ROWS, DIM), marker, np.float32))
        delta.dense({"w": np.full((1, 1), marker, np.float32)})
        return delta.publish()


@dataclass(frozen=True)
class Answer:
    """What one answer was made of: its delta, every marker in its rows, and its weights."""

    delta: int
    markers: frozenset[float]
    told: frozenset[float]


class Caller:
    """Asks again and again, each time on a new connection.

    Attributes:
        answers: in their order.
        failures: what went wrong otherwise.
    """

    def __init__(self, server: RunningServer) -> None:
        self._url = f"http://{server.http}/v2/models/m/infer"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answers: list[Answer] = []
        self.failures: list[str] = []

    def _run(self) -> None:
        body = {
            "inputs": [
                {"name": name, "datatype": "INT64", "shape": [40, 1],
                 "data": keys(table)[:40].tolist()}
                for table, name in enumerate(TABLES)
            ]
        }  # fmt: skip
        while not self._stopping.is_set():
            try:
                answer = httpx.post(self._url, json=body, timeout=20)
            except httpx.HTTPError as error:
                self.failures.append(repr(error))
                continue
            if answer.status_code != 200:
                self.failures.append(answer.text)
                continue
            content = answer.json()
            outputs = {one["name"]: one["data"] for one in content["outputs"]}
            rows = frozenset([*outputs["low"], *outputs["high"]])
            told = frozenset(outputs["told"])
            self.answers.append(Answer(content["parameters"]["delta"], rows, told))

    def __enter__(self) -> "Caller":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    """Wait until something is so; the server being away for a moment is not."""
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except (httpx.HTTPError, OSError, ValueError):
            pass
        assert time.monotonic() < end_s, f"not in {timeout_s} s: {what}"
        time.sleep(0.02)


def ready(server: RunningServer) -> dict[str, object]:
    """Return what the ready file says now."""
    content: dict[str, object] = json.loads((server.log.parent / "ready.json").read_bytes())
    return content


def served(server: RunningServer) -> list[object]:
    """Return what each worker serves."""
    workers = httpx.get(f"http://{server.admin}/admin/v1/workers", timeout=10).json()["workers"]
    return [worker["snapshots"] for worker in workers]


def check(answers: Sequence[Answer]) -> None:
    """Check that rows and weights of every answer are of its delta, and that none went back."""
    for one in answers:
        assert one.markers == one.told == {float(one.delta)}
    deltas = [one.delta for one in answers]
    assert deltas == sorted(deltas)


@pytest.mark.parametrize(
    "step",
    [one if one == "durable" else pytest.param(one, marks=pytest.mark.slow) for one in STEPS],
)
def test_a_supervisor_killed_in_the_switch_of_a_delta(
    server: RunningServer, repository: Path, step: str
) -> None:
    """Whatever the step: rows and weights change together, once, and the delta is served."""
    before = ready(server)
    order = server.log.parent / "run" / "die_at"
    with Caller(server) as caller:
        publish(repository, 1)
        wait_for(lambda: any(one.delta == 1 for one in caller.answers), "delta 1")
        order.write_text(step)
        publish(repository, 2)
        wait_for(lambda: ready(server)["supervisor"] != before["supervisor"], "another supervisor")
        wait_for(lambda: caller.answers[-1].delta == 2, "delta 2")
        publish(repository, 3)
        wait_for(lambda: caller.answers[-1].delta == 3, "delta 3, of the next supervisor")

    assert not order.exists()
    assert caller.failures == []
    check(caller.answers)
    wait_for(lambda: served(server) == [{"m": "1+3"}] * 2, "delta 3 in both workers")
    assert ready(server)["workers"] == before["workers"]
