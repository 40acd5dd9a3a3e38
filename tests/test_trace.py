"""A trace of a started server: spans of both workers nest, and carry the ids of requests."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

from anabranch_publish import publish_version
from anabranch_testing import new_connections
from anabranch_testing.graphs import scale_model
from anabranch_testing.server_processes import wait_until
from anabranch_testing.servers import RunningServer, started_server

REQUEST = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}
WRONG: dict[str, object] = {"inputs": []}
SECONDS = 8.0  # enough for a loader to start, beside other work
STEPS = ["decode", "queue", "run", "encode"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    (tmp_path / "models").mkdir()
    publish_version(tmp_path / "models" / "ctr", scale_model(tmp_path / "made").path, version=1)
    scratch = tmp_path / "server"
    scratch.mkdir()
    with started_server(
        tmp_path / "models", scratch, "--workers", "2", "--poll-s", "0.1"
    ) as server:
        yield server


@contextmanager
def asking(server: RunningServer) -> Iterator[set[str]]:
    """Send requests over new connections until the block ends; yields the ids answered so far."""
    over, answered = threading.Event(), set[str]()

    def http() -> None:
        for number in count():
            if over.is_set():
                return
            headers = {"X-Request-Id": f"http-{number}"}
            url = f"http://{server.http}/v2/models/ctr/infer"
            new_connections.post(url, json=WRONG if number % 5 == 0 else REQUEST, headers=headers)
            answered.add(headers["X-Request-Id"])

    def grpc() -> None:
        client = triton_grpc.InferenceServerClient(server.grpc)
        x = triton_grpc.InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(np.ones((1, 4), np.float32))
        for number in count():
            if over.is_set():
                client.close()
                return
            client.infer("ctr", [x], headers={"x-request-id": f"grpc-{number}"})
            answered.add(f"grpc-{number}")

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(http), threads.submit(grpc)]
        try:
            yield answered
        finally:
            over.set()
        for one in running:
            one.result()


def trace(server: RunningServer, seconds: float) -> httpx.Response:
    url = f"http://{server.admin}/admin/v1/trace?seconds={seconds}"
    return new_connections.post(url, timeout=seconds + 30)


def passages(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The asynchronous events of each id, in their order."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] in "be":
            found[event["id"]].append(event)
    return found


def check_nesting(events: list[dict[str, Any]]) -> None:
    """Every end belongs to the span that began last, and no time goes back."""
    open_spans: list[str] = []
    for before, event in zip([None, *events], events, strict=False):
        assert before is None or before["ts"] <= event["ts"]
        if event["ph"] == "b":
            open_spans.append(event["name"])
        else:
            assert open_spans.pop() == event["name"]
    assert open_spans == []


def test_a_trace_shows_requests_batches_and_a_switch(server: RunningServer, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as beside, asking(server) as answered:
        wait_until(lambda: {"http-0", "grpc-0"} <= answered, 10.0, "both protocols answer")
        so_far = set(answered)
        recordings = [beside.submit(trace, server, SECONDS) for _ in range(2)]
        model = tmp_path / "models" / "ctr"
        publish_version(model, scale_model(tmp_path / "again").path, version=2)
        refused, response = sorted(
            (one.result() for one in recordings), key=lambda one: one.status_code, reverse=True
        )
    assert (response.status_code, refused.status_code) == (200, 409)
    assert response.headers["content-type"] == "application/json"
    events = response.json()["traceEvents"]

    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == dict(zip(server.workers, ("worker 0", "worker 1"), strict=True))
    requests = set()
    for spans in passages(events).values():
        check_nesting(spans)
        about = spans[0]["args"]
        if spans[0]["name"] == "request":
            requests.add(about["request_id"])
            steps = [span["name"] for span in spans[1:-1] if span["ph"] == "b"]
            assert steps == (STEPS if about["code"] == "OK" else [])
            assert about["code"] in ("OK", "INVALID_ARGUMENT")
    assert {request.split("-")[0] for request in requests} >= {"http", "grpc"}
    assert requests & (answered - so_far)
    assert not {"http-0", "grpc-0"} & requests  # answered before it began

    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    for spans in threads.values():
        batches = [one for one in spans if one["name"] == "batch"]
        for stage in [one for one in spans if one["name"] in ("stage", "run", "deliver")]:
            end = stage["ts"] + stage["dur"]
            assert any(
                one["ts"] <= stage["ts"] + 0.01 and end <= one["ts"] + one["dur"] + 0.01
                for one in batches
            ), stage
    shown = {(event["pid"], event["name"]) for event in events}
    for pid in server.workers:
        assert {"batch", "stage", "run", "deliver", "build", "prepare", "switch"} <= {
            name for one, name in shown if one == pid
        }

    quiet = trace(server, 0.1).json()["traceEvents"]
    assert {event["ph"] for event in quiet} == {"M"}


def test_times_out_of_bounds_are_refused(server: RunningServer) -> None:
    for seconds in (0, 0.05, 61, "nan", "x"):
        url = f"http://{server.admin}/admin/v1/trace?seconds={seconds}"
        assert new_connections.post(url).status_code == 400
