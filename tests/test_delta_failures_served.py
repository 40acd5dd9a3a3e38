"""Deltas that cannot be applied: the old rows serve on, everybody is told why, and it passes.

One server has a model for each fault. It goes through all of them, and tests look at what it said.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch_publish import DeltaDraft, Publisher, publish_version
from anabranch_testing import new_connections
from anabranch_testing.forged_deltas import Damage, DeltaForge, with_tensors
from anabranch_testing.graphs import write_graph
from anabranch_testing.server_processes import wait_until
from anabranch_testing.servers import RunningServer, started_server

ROWS, DIM = 64, 4
PATIENCE_S = 60.0

# Whole numbers all the way: what is answered is exact. Row k of the table is full of k.
GRAPH = """
scored (int64[N] item) => (float[N, 1] score)
<float[4, 1] w = {1.0, 1.0, 1.0, 1.0}>
{ rows = Gather(table, item) score = MatMul(rows, w) }
"""
ALL = {"inputs": [{"name": "item", "datatype": "INT64", "shape": [ROWS], "data": [*range(ROWS)]}]}


def good(draft: DeltaDraft) -> None:
    """Rows 1 and 2 are full of 100, and dense weights are twice what they were."""
    draft.upsert("table", np.array([1, 2]), np.full((2, DIM), 100, np.float32))
    draft.dense({"w": np.full((DIM, 1), 2, np.float32)})


BEFORE = [DIM * float(key) for key in range(ROWS)]
AFTER = [2.0 * DIM * (100.0 if key in (1, 2) else key) for key in range(ROWS)]


def corrupt(attempt: Path, _: dict[str, Any]) -> None:
    path = attempt / "0000.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def truncated(attempt: Path, _: dict[str, Any]) -> None:
    path = attempt / "0000.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def missing(attempt: Path, _: dict[str, Any]) -> None:
    (attempt / "dense.safetensors").unlink()


def based_elsewhere(_: Path, document: dict[str, Any]) -> None:
    document["base"]["identity"] = f"sha256:{'0' * 64}"


def not_a_document(_: Path, document: dict[str, Any]) -> None:
    document["format"] = "one"


def with_value(name: str, tensor: str, value: float) -> Damage:
    def change(tensors: dict[str, np.ndarray]) -> None:
        tensors[tensor].flat[0] = value

    return with_tensors(name, change)


def wider(draft: DeltaDraft) -> None:
    draft.upsert("table", np.array([1]), np.ones((1, DIM + 1), np.float32))


def grown(draft: DeltaDraft) -> None:
    draft.upsert("table", np.array([ROWS]), np.ones((1, DIM), np.float32))


def unknown_table(draft: DeltaDraft) -> None:
    draft.upsert("no such table", np.array([1]), np.ones((1, DIM), np.float32))


def unknown_weight(draft: DeltaDraft) -> None:
    draft.dense({"no such weight": np.ones(3, np.float32)})


def other_shape(draft: DeltaDraft) -> None:
    draft.dense({"w": np.ones((DIM, 2), np.float32)})


@dataclass(frozen=True)
class Case:
    """A fault, and what is said of it.

    Attributes:
        reason: in metrics, in the log, to admins.
        words: in the error.
        damage: what is wrong with a good delta.
        change: what a delta holds that is wrong by itself.
    """

    reason: str
    words: str
    damage: Damage | None = None
    change: Callable[[DeltaDraft], None] = good


CASES = {
    "corrupt": Case("checksum", "0000.safetensors", corrupt),
    "truncated": Case("truncated", "0000.safetensors", truncated),
    "missing": Case("truncated", "dense.safetensors", missing),
    "wrong_base": Case("wrong_base", "sha256:0000", based_elsewhere),
    "document": Case("invalid", "delta.json", not_a_document),
    "nan_row": Case("non_finite", "table", with_value("0000.safetensors", "values", np.nan)),
    "infinite_weight": Case("non_finite", "'w'", with_value("dense.safetensors", "w", np.inf)),
    "dim": Case("shape", "table", change=wider),
    "growth": Case("shape", "table", change=grown),
    "unknown_table": Case("unknown_table", "no such table", change=unknown_table),
    "unknown_weight": Case("unknown_table", "no such weight", change=unknown_weight),
    "weight_shape": Case("shape", "'w'", change=other_shape),
}
OTHERS = ("gap", "killed", "cache")


@dataclass
class Told:
    """What the server answered and said of each model, while the fault was there and later."""

    faulty: dict[str, tuple[list[float], int]] = field(default_factory=dict)
    errors: dict[str, Any] = field(default_factory=dict)
    metrics: dict[tuple[str, str], float] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    mended: dict[str, tuple[list[float], int]] = field(default_factory=dict)
    cleared: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("failures")
    path = write_graph(root / "graph", GRAPH)
    model = onnx.load(path)
    values = np.repeat(np.arange(ROWS, dtype=np.float32)[:, None], DIM, axis=1)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "table"))
    onnx.save(model, path)
    (root / "model.yaml").write_text("optimize: {min_table_bytes: 0}\n")
    repository = root / "repository"
    repository.mkdir()
    for name in (*CASES, *OTHERS):
        publish_version(repository / name, path, version=1, model_yaml=root / "model.yaml")
    return repository


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[RunningServer]:
    scratch = repository.parent / "scratch"
    scratch.mkdir()
    settings = scratch / "settings.yaml"
    settings.write_text("switch: {gap_grace_s: 1.0}\n")
    with started_server(
        repository, scratch, "--poll-s", "0.2", "--config", str(settings)
    ) as running:
        yield running


def ask(server: RunningServer, name: str) -> tuple[list[float], int]:
    """Return the scores of all items, and the delta that they are of."""
    answer = new_connections.post(
        f"http://{server.http}/v2/models/{name}/infer", json=ALL, timeout=60
    )
    answer.raise_for_status()
    return answer.json()["outputs"][0]["data"], int(answer.headers["Anabranch-Delta"])


def model(server: RunningServer, name: str) -> dict[str, Any]:
    answer = new_connections.get(f"http://{server.admin}/admin/v1/models/{name}")
    answer.raise_for_status()
    view: dict[str, Any] = answer.json()
    return view


def delta_of(server: RunningServer, name: str) -> int:
    (version,) = model(server, name)["versions"]
    return int(version["delta"])


def failures(server: RunningServer) -> dict[tuple[str, str], float]:
    """Return how often each model's reloads failed for each reason."""
    text = new_connections.get(f"http://{server.metrics}/metrics").text
    return {
        (sample.labels["model"], sample.labels["reason"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "anabranch_reload_failures_total"
    }


def lines(server: RunningServer) -> list[dict[str, Any]]:
    """Return what the log says of deltas."""
    found = [json.loads(line) for line in server.log.read_text().splitlines()]
    return [line for line in found if line["event"] == "reload" and line["kind"] == "delta"]


@pytest.fixture(scope="module")
def told(server: RunningServer, repository: Path) -> Told:
    told = Told()
    forges = {}
    for name, case in CASES.items():
        workshop = repository.parent / "workshop" / name
        forges[name] = DeltaForge(repository / name / "1", workshop)
        forges[name].bring(forges[name].make(case.change), case.damage)

    def all_said() -> bool:
        told.errors = {name: model(server, name)["last_error"] for name in CASES}
        return all(told.errors.values())

    with suppress(TimeoutError):  # each test says what is missing
        wait_until(all_said, PATIENCE_S, "every fault is told of")
    told.faulty = {name: ask(server, name) for name in CASES}
    told.metrics = failures(server)
    told.lines = lines(server)

    for name in CASES:
        shutil.rmtree(repository.parent / "workshop" / name)
        shutil.rmtree(repository / name / "1" / "deltas")
        forge = DeltaForge(repository / name / "1", repository.parent / "workshop" / name)
        forge.bring(forge.make(good))
    with suppress(TimeoutError):
        wait_until(
            lambda: all(delta_of(server, name) == 1 for name in CASES), PATIENCE_S, "all mended"
        )
    told.mended = {name: ask(server, name) for name in CASES}
    told.cleared = {name: model(server, name)["versions"][0]["last_error"] for name in CASES}
    return told


@pytest.mark.parametrize("name", CASES)
def test_what_was_served_before_serves_on(told: Told, name: str) -> None:
    assert told.faulty[name] == (BEFORE, 0)


@pytest.mark.parametrize("name", CASES)
def test_admins_metrics_and_log_say_why(told: Told, name: str) -> None:
    case, error = CASES[name], told.errors[name]

    assert error is not None, "nobody was told"
    assert (error["version"], error["delta"], error["reason"]) == (1, 1, case.reason)
    assert case.words in error["error"]
    assert told.metrics[name, case.reason] >= 1
    (line,) = [one for one in told.lines if one["model"] == name]
    shown = {key: line[key] for key in ("version", "delta", "result", "reason")}
    assert shown == {"version": 1, "delta": 1, "result": "failed", "reason": case.reason}


@pytest.mark.parametrize("name", CASES)
def test_a_delta_that_takes_its_place_is_served(told: Told, name: str) -> None:
    assert told.mended[name] == (AFTER, 1)
    assert told.cleared[name] is None


def test_a_gap_is_waited_for_then_told_of_and_filled(
    server: RunningServer, repository: Path
) -> None:
    forge = DeltaForge(repository / "gap" / "1", repository.parent / "workshop" / "gap")
    forge.make(good)
    forge.make(lambda draft: draft.upsert("table", [3], np.full((1, DIM), 7, np.float32)))

    forge.bring(2)

    wait_until(lambda: model(server, "gap")["last_error"] is not None, PATIENCE_S, "it is told of")
    error = model(server, "gap")["last_error"]
    assert (error["version"], error["delta"], error["reason"]) == (1, 1, "gap")
    assert failures(server)["gap", "gap"] == 1
    assert ask(server, "gap") == (BEFORE, 0)

    forge.bring(1)

    wait_until(lambda: delta_of(server, "gap") == 2, PATIENCE_S, "both are served")
    assert ask(server, "gap") == ([*AFTER[:3], 2.0 * DIM * 7, *AFTER[4:]], 2)


PUBLISH = """
import itertools, sys
import numpy as np
from anabranch_publish import Publisher
with Publisher(sys.argv[1], version=1) as publisher:
    for _ in itertools.count():
        draft = publisher.delta()
        newest = publisher.newest()
        number = 1 if newest is None else newest.sequence + 1
        draft.upsert("table", np.arange(64), np.full((64, 4), number, np.float32))
        assert draft.publish() == number
        print(number, flush=True)
"""


def test_publishers_that_are_killed_leave_whole_deltas(
    server: RunningServer, repository: Path
) -> None:
    chance = np.random.default_rng(5)
    acknowledged = 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", PUBLISH, str(repository / "killed")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        printed, said = process.communicate(timeout=30)
        assert first, said
        acknowledged = max(int(number) for number in (first + printed).split())
        scores, delta = ask(server, "killed")
        assert scores == [DIM * float(delta)] * ROWS if delta else scores == BEFORE

    with Publisher(repository / "killed", version=1) as publisher:
        draft = publisher.delta()
        draft.upsert("table", np.arange(ROWS), np.full((ROWS, DIM), 1000, np.float32))
        last = draft.publish()
    assert acknowledged < last <= acknowledged + 2  # the last one may be published and not heard of
    wait_until(lambda: delta_of(server, "killed") == last, PATIENCE_S, "the last one is served")
    assert ask(server, "killed") == ([DIM * 1000.0] * ROWS, last)
    assert model(server, "killed")["last_error"] is None


def test_deltas_go_on_when_the_cache_was_deleted(server: RunningServer, repository: Path) -> None:
    folder = repository / "cache"

    def publish(change: Callable[[DeltaDraft], None]) -> None:
        with Publisher(folder, version=1) as publisher:
            draft = publisher.delta()
            change(draft)
            number = draft.publish()
        wait_until(lambda: delta_of(server, "cache") == number, PATIENCE_S, f"delta {number}")

    publish(good)
    assert ask(server, "cache") == (AFTER, 1)
    for each in (server.log.parent / "cache").iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()

    assert ask(server, "cache") == (AFTER, 1)
    publish(lambda draft: draft.upsert("table", [3], np.full((1, DIM), 7, np.float32)))
    three = [*AFTER[:3], 2.0 * DIM * 7, *AFTER[4:]]
    assert ask(server, "cache") == (three, 2)
    publish(lambda draft: draft.dense({"w": np.ones((DIM, 1), np.float32)}))
    assert ask(server, "cache") == ([score / 2 for score in three], 3)

    killed = server.workers[0]
    os.kill(killed, signal.SIGKILL)

    def is_back() -> bool:
        shown = new_connections.get(f"http://{server.admin}/admin/v1/workers").json()["workers"]
        return all(one["state"] == "serving" and one["pid"] != killed for one in shown)

    wait_until(is_back, PATIENCE_S, "another worker serves")
    assert ask(server, "cache") == ([score / 2 for score in three], 3)
