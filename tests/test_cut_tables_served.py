"""Tables that were cut out of a graph, on a started server: shown to operators, changed under load.

Every row of both tables holds one number, the marker, and supervisors write the next one again and
again: requests must never see rows of two markers, and never one older than what was decided.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from anabranch_publish import publish_version
from anabranch_testing import new_connections
from anabranch_testing.graphs import write_graph
from anabranch_testing.marked_rows import DIM, ROWS, TABLES
from anabranch_testing.servers import RunningServer, started_server

GRAPH = """
marked (int64[N] user, int64[N] item) => (float[N, 1] low, float[N, 1] high)
{
  one = Gather(a, user)
  two = Gather(b, item)
  both = Concat <axis: int = 1> (one, two)
  low = ReduceMin <axes = [1], keepdims = 1> (both)
  high = ReduceMax <axes = [1], keepdims = 1> (both)
}
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cut")
    path = write_graph(root / "graph", GRAPH)
    model = onnx.load(path)
    for name in TABLES:
        values = np.full((ROWS, DIM), 0.25, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, path)
    (root / "model.yaml").write_text("optimize: {min_table_bytes: 0}\n")
    (root / "models").mkdir()
    publish_version(
        root / "models" / "m",
        path,
        version=1,
        model_yaml=root / "model.yaml",
        external_data=("weights.bin",),
    )
    return root / "models"


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[RunningServer]:
    scratch = repository.parent / "scratch"
    scratch.mkdir()
    with started_server(
        repository,
        scratch,
        *("--workers", "2", "--poll-s", "0.2"),
        module="anabranch_testing.processes.rewriting",
    ) as running:
        yield running


def decided(server: RunningServer) -> int:
    """Return the last marker that was decided; 0 before the first."""
    places = list(server.log.parent.glob("run*/marker"))
    return int(places[0].read_text()) if places else 0


def until(condition: Callable[[], bool], what: str) -> None:
    waiting = threading.Event()
    for _ in range(1200):
        if condition():
            return
        waiting.wait(0.05)
    raise AssertionError(f"not in a minute: {what}")


def ask(server: RunningServer, users: list[int], items: list[int]) -> tuple[float, float]:
    """Return the least and the greatest number that a request looked up."""
    body = {
        "inputs": [
            {"name": name, "datatype": "INT64", "shape": [len(ids)], "data": ids}
            for name, ids in (("user", users), ("item", items))
        ]
    }
    answer = new_connections.post(f"http://{server.http}/v2/models/m/infer", json=body)
    answer.raise_for_status()
    outputs = {one["name"]: one["data"] for one in answer.json()["outputs"]}
    return min(outputs["low"]), max(outputs["high"])


def admin(server: RunningServer, path: str) -> Any:
    answer = new_connections.get(f"http://{server.admin}/admin/v1/models/m{path}")
    answer.raise_for_status()
    return answer.json()


def test_requests_see_every_change_that_was_decided_and_no_mixture(server: RunningServer) -> None:
    every = list(range(ROWS))
    seen: list[float] = []
    for _ in range(40):
        before = decided(server)
        until(lambda: decided(server) > before, "rows change")  # noqa: B023
        low, high = ask(server, every, every[::-1])
        assert low == high
        assert low >= before  # the next one is decided after this one was applied
        seen.append(low)

    assert seen == sorted(seen)
    assert len(set(seen)) > 20


def test_ids_from_the_end_read_changed_rows_and_others_are_refused(server: RunningServer) -> None:
    before = decided(server)
    until(lambda: decided(server) > before, "rows change")

    assert ask(server, [-1, -ROWS], [0, ROWS - 1])[0] >= before
    for wrong in (ROWS, -ROWS - 1):
        with pytest.raises(httpx.HTTPStatusError) as caught:
            ask(server, [wrong], [0])
        assert caught.value.response.status_code == 400
        assert "'user'" in caught.value.response.json()["error"]


def test_operators_see_tables_and_rows(server: RunningServer) -> None:
    before = decided(server)
    until(lambda: decided(server) > before, "rows change")

    tables = {table["name"]: table for table in admin(server, "/tables")["tables"]}
    assert set(tables) == set(TABLES)
    for table in tables.values():
        assert (table["rows"], table["dim"], table["dtype"]) == (ROWS, DIM, "f32")
        assert table["keys"] == "dense_id"
    rows = admin(server, f"/tables/a/rows?key=0&key={ROWS - 1}&key={ROWS}")["rows"]
    assert [row["found"] for row in rows] == [True, True, False]
    for row in rows[:2]:
        assert len(set(row["values"])) == 1
        assert row["values"][0] >= before


def test_the_command_shows_rows_as_they_were_published(repository: Path) -> None:
    command = [sys.executable, "-m", "anabranch_server", "rows", str(repository / "m"), "b"]

    done = subprocess.run(
        [*command, "3", str(ROWS), "--json"], capture_output=True, text=True, check=True
    )
    there, missing = json.loads(done.stdout)["rows"]
    assert (there["found"], there["values"]) == (True, [0.25] * DIM)
    assert (missing["found"], missing["values"]) == (False, [])

    command[-1] = "no_such"
    done = subprocess.run([*command, "3"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "its graph has no such table" in done.stderr


def test_status_metrics_and_metadata_say_what_was_cut(server: RunningServer) -> None:
    ask(server, [0], [0])
    (version,) = admin(server, "")["versions"]
    assert version["split"] == {"lookups_cut": 2, "lookups_left": 0, "max_abs_diff": 0.0}

    page = new_connections.get(f"http://{server.metrics}/metrics").text
    for where, count in (("cut", 2), ("left", 0)):
        line = f'anabranch_optimized_lookups{{model="m",version="1",where="{where}"}} {count}'
        assert line in page
    for table in TABLES:
        assert f'anabranch_store_lookups_total{{model="m",table="{table}"}}' in page

    config = new_connections.get(f"http://{server.http}/v2/models/m/config").json()
    assert [one["name"] for one in config["input"]] == ["user", "item"]
    assert [one["name"] for one in config["output"]] == ["low", "high"]
    assert config["rows"]["independent"] is True
    assert config["batching"]["merge"] is True
    metadata = new_connections.get(f"http://{server.http}/v2/models/m").json()
    assert [one["name"] for one in metadata["inputs"]] == ["user", "item"]
