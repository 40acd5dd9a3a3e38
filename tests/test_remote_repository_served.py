"""A server whose repository lies in a real S3 server: versions come, the store goes, a restart."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import fsspec
import httpx
import numpy as np
import pytest

from anabranch_publish import Publisher, publish_version
from anabranch_testing.graphs import scale_model
from anabranch_testing.s3_servers import S3Server, s3_server
from anabranch_testing.server_processes import wait_until
from anabranch_testing.servers import RunningServer, started_server

REQUEST = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}
SECRET = "a-secret-that-no-log-may-hold"


@pytest.fixture
def store() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


def publish(store: S3Server, scratch: Path, version: int, *, forge: bool = False) -> None:
    """Publish a version by hand: the manifest last."""
    (scratch / "drafts").mkdir(exist_ok=True)
    made = scale_model(scratch / "made").path
    publish_version(scratch / "drafts" / "ctr", made, version=version)
    draft = scratch / "drafts" / "ctr" / str(version)
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    for path in sorted(draft.iterdir(), key=lambda path: path.name == "manifest.json"):
        data = path.read_bytes()
        if forge and path.name == "model.onnx":
            data = data[:-1] + bytes([data[-1] ^ 1])
        files.pipe_file(f"{store.url}/live/ctr/{version}/{path.name}", data)


def answer(server: RunningServer) -> str:
    """Return the version that answers."""
    body = httpx.post(f"http://{server.http}/v2/models/ctr/infer", json=REQUEST).json()
    assert body["outputs"][0]["data"] == [1111.0]
    return str(body["model_version"])


def put(store: S3Server, scratch: Path, path: str) -> None:
    """Bring one file of what was published by hand to the store, as it was published."""
    data = (scratch / "drafts" / "ctr" / path).read_bytes()
    fsspec.filesystem("s3", skip_instance_cache=True).pipe_file(
        f"{store.url}/live/ctr/{path}", data
    )


def scores(server: RunningServer) -> list[float]:
    body = httpx.post(f"http://{server.http}/v2/models/ctr/infer", json=REQUEST)
    return list(body.json()["outputs"][0]["data"])


def statuses(store: S3Server) -> set[int]:
    """Return what was answered to those who asked for files of deltas."""
    return {one.status for one in list(store.asked) if one.key.endswith(".safetensors")}


def figure(server: RunningServer, name: str) -> float:
    text = httpx.get(f"http://{server.metrics}/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def serve(store: S3Server, scratch: Path) -> AbstractContextManager[RunningServer]:
    scratch.mkdir(exist_ok=True)
    return started_server(f"{store.url}/live", scratch, "--poll-s", "0.2", "--workers", "1")


def test_a_repository_in_an_object_store_is_served(store: S3Server, tmp_path: Path) -> None:
    publish(store, tmp_path, 1)
    with serve(store, tmp_path / "server") as server:
        assert answer(server) == "1"
        assert figure(server, "anabranch_repository_reachable") == 1
        shown = httpx.get(f"http://{server.admin}/admin/v1/config").json()
        assert shown["storage_options"] == {}

        publish(store, tmp_path, 2)
        wait_until(lambda: answer(server) == "2", 60.0, "the new version is served")

        store.go()
        wait_until(
            lambda: figure(server, "anabranch_repository_reachable") == 0, 60.0, "the store is gone"
        )
        assert answer(server) == "2"
        reload = httpx.post(f"http://{server.admin}/admin/v1/models/ctr/reload", timeout=60.0)
        assert reload.json()["state"] == "FAILED"
        assert "Could not connect" in reload.json()["error"]
        log = server.log.read_text()
        assert log.count("repository_unreadable") == 1
        assert server.stop() == 0

    (tmp_path / "server" / "ready.json").unlink(missing_ok=True)
    with serve(store, tmp_path / "server") as server:  # the store is down still
        assert answer(server) == "2"
        assert "repository_from_cache" in server.log.read_text()
        store.come()
        publish(store, tmp_path, 3)
        told = {"wait_s": 60}
        reload = httpx.post(
            f"http://{server.admin}/admin/v1/models/ctr/reload", json=told, timeout=90.0
        )
        assert reload.status_code == 200, reload.text
        assert answer(server) == "3"
        assert SECRET not in server.log.read_text()
        document = json.dumps(httpx.get(f"http://{server.admin}/admin/v1/config").json())
        assert SECRET not in document


def last_error(server: RunningServer) -> str:
    model = httpx.get(f"http://{server.admin}/admin/v1/models/ctr").json()
    error = model["last_error"]
    return f"{error['reason']}: {error['error']}" if error else ""


def test_an_object_that_was_changed_is_refused_until_it_is_the_published_one_again(
    store: S3Server, tmp_path: Path
) -> None:
    publish(store, tmp_path, 1)
    with serve(store, tmp_path / "server") as server:
        publish(store, tmp_path, 2, forge=True)
        refused = "checksum: model.onnx: expected sha256"
        wait_until(lambda: refused in last_error(server), 60.0, "it is refused")
        assert answer(server) == "1"

        put(store, tmp_path, "2/model.onnx")
        wait_until(lambda: answer(server) == "2", 120.0, "it is tried again by itself")


def test_a_delta_whose_files_come_after_its_document_is_served(
    store: S3Server, tmp_path: Path
) -> None:
    publish(store, tmp_path, 1)
    draft = tmp_path / "drafts" / "ctr"
    with Publisher(draft, 1) as publisher:
        delta = publisher.delta()
        delta.dense({"w": np.array([[2.0], [20.0], [200.0], [2000.0]], np.float32)})
        delta.publish()
    paths = [path.relative_to(draft) for path in draft.glob("1/deltas/*/**/*") if path.is_file()]
    with serve(store, tmp_path / "server") as server:
        put(store, tmp_path, "1/deltas/00000001/delta.json")
        refused = "missing; expected"
        wait_until(lambda: refused in last_error(server), 60.0, "it is refused")
        store.asked.clear()
        wait_until(lambda: 404 in statuses(store), 60.0, "it is refused once more")
        assert answer(server) == "1"
        for path in paths:
            if path.name != "delta.json":
                put(store, tmp_path, str(path))

        wait_until(lambda: scores(server) == [2222.0], 120.0, "it is tried again by itself")


def test_a_delta_in_an_object_store_is_served(store: S3Server, tmp_path: Path) -> None:
    publish(store, tmp_path, 1)
    with serve(store, tmp_path / "server") as server:
        assert answer(server) == "1"
        before = store.got("model.onnx")
        with Publisher(f"{store.url}/live/ctr", 1, notify=f"http://{server.admin}") as publisher:
            draft = publisher.delta(step=2)
            draft.dense({"w": np.array([[2.0], [20.0], [200.0], [2000.0]], np.float32)})
            assert draft.publish() == 1

        wait_until(lambda: scores(server) == [2222.0], 120.0, "the delta is served")
        assert store.got("model.onnx") == before
        assert any("/deltas/00000001/" in one.key for one in store.asked if one.range)
