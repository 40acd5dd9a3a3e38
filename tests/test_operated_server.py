"""A server as its operators see it: commands, Triton's clients, admin calls on real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from anabranch_publish import publish_version
from anabranch_testing import new_connections
from anabranch_testing.graphs import scale_model
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.triton_clients import retire_http_client

SURROUNDINGS = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
REQUEST = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}
OPTIONS = ("--workers", "2", "--poll-s", "0.1")


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scale_model(tmp_path_factory.mktemp("trained")).path


def published(folder: Path, onnx: Path) -> Path:
    """Return a new repository in `folder` with versions 1 to 3 of one model."""
    (folder / "repository").mkdir()
    for version in (1, 2, 3):
        publish_version(folder / "repository" / "ctr", onnx, version=version)
    return folder / "repository"


@contextmanager
def running(folder: Path) -> Iterator[RunningServer]:
    """Serve the repository in `folder`; a later server finds the state of an earlier one."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    (scratch / "ready.json").unlink(missing_ok=True)
    with started_server(folder / "repository", scratch, *OPTIONS) as server:
        yield server


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, onnx: Path) -> Path:
    return published(tmp_path_factory.mktemp("shared"), onnx)


@pytest.fixture(scope="module")
def shared(repository: Path) -> Iterator[RunningServer]:
    with running(repository.parent) as server:
        yield server


@pytest.fixture
def server(shared: RunningServer) -> RunningServer:
    """A server that follows its policy: version 3 is served."""
    anabranch(shared, "reload", "ctr", "--unpin")
    assert answers(shared) == {"3"}
    return shared


def anabranch(server: RunningServer, *words: str, code: int = 0) -> tuple[str, str]:
    """Run a command; return what it printed and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "anabranch_server", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**SURROUNDINGS, "ANABRANCH_ADMIN_URL": f"http://{server.admin}"},
        check=False,
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def model(server: RunningServer) -> dict[str, Any]:
    view: dict[str, Any] = new_connections.get(f"http://{server.admin}/admin/v1/models/ctr").json()
    return view


def answers(server: RunningServer, selector: str = "") -> set[str]:
    """Versions, or statuses, that twenty new connections get: those of both workers."""
    place = f"/versions/{selector}" if selector else ""
    seen = set()
    for _ in range(20):
        answer = new_connections.post(
            f"http://{server.http}/v2/models/ctr{place}/infer", json=REQUEST
        )
        seen.add(answer.headers.get("Anabranch-Model-Version", str(answer.status_code)))
    return seen


def wait_until(is_so: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def test_a_rollback_holds_over_new_versions_and_restarts_until_it_is_released(
    tmp_path: Path, onnx: Path
) -> None:
    repository = published(tmp_path, onnx)
    with running(tmp_path) as server:
        assert answers(server) == {"3"}

        printed, _ = anabranch(server, "rollback")

        assert printed.startswith("rollback of ctr: done in ")
        assert answers(server) == {"2"}
        assert answers(server, "3") == {"404"}
        assert "held at" in anabranch(server, "status")[0]
        publish_version(repository / "ctr", onnx, version=4)
        anabranch(server, "reload")
        assert answers(server) == {"2"}

    with running(tmp_path) as server:
        assert answers(server) == {"2"}
        assert model(server)["pinned"] == "2"

        operation = json.loads(anabranch(server, "unpin", "--json")[0])

        assert (operation["action"], operation["state"]) == ("unpin", "DONE")
        assert answers(server) == {"4"}
        assert model(server)["pinned"] is None


def test_versions_come_and_go_by_command(server: RunningServer) -> None:
    anabranch(server, "load", "ctr", "--version", "1")
    assert answers(server, "1") == {"1"}
    assert answers(server) == {"3"}

    anabranch(server, "unload", "ctr", "--version", "1")
    assert answers(server, "1") == {"404"}

    anabranch(server, "unload", "ctr")
    assert answers(server) == {"503"}
    assert "UNAVAILABLE" in anabranch(server, "status")[0]

    anabranch(server, "load", "ctr")
    assert answers(server) == {"3"}


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tritons_clients_load_and_unload(server: RunningServer, kind: str) -> None:
    client: Any
    if kind == "http":
        client = triton_http.InferenceServerClient(server.admin)
    else:
        client = triton_grpc.InferenceServerClient(str(server.ready["admin_grpc"]))
    assert client.is_server_live()
    assert client.is_server_ready()

    client.unload_model("ctr")
    assert answers(server) == {"503"}
    client.load_model("ctr")
    assert answers(server) == {"3"}

    with pytest.raises(InferenceServerException, match="not known"):
        client.load_model("nope")
    with pytest.raises(InferenceServerException, match="config"):
        client.load_model("ctr", config="{}")
    index = client.get_model_repository_index()
    if kind == "http":
        listed = {each["version"]: (each["state"], each["reason"]) for each in index}
    else:
        listed = {each.version: (each.state, each.reason) for each in index.models}
    assert listed["3"] == ("READY", "")
    assert listed["1"][0] == "UNAVAILABLE"
    assert listed["1"][1]
    client.update_log_settings({"log_verbose_level": 1})
    level = new_connections.put(f"http://{server.admin}/admin/v1/log", json={}).json()["level"]
    assert level == "debug"
    client.close() if kind == "grpc" else retire_http_client(client)


def test_labels_set_by_call_outlive_the_server(tmp_path: Path, onnx: Path) -> None:
    published(tmp_path, onnx)
    with running(tmp_path) as server:
        place = f"http://{server.admin}/admin/v1/models/ctr/labels"
        assert new_connections.put(place, json={"canary": 3}).json()["labels"] == {"canary": 3}
        assert answers(server, "canary") == {"3"}

    with running(tmp_path) as server:
        assert answers(server, "canary") == {"3"}
        place = f"http://{server.admin}/admin/v1/models/ctr/labels"
        assert new_connections.put(place, json={"canary": None}).json()["labels"] == {}
        assert answers(server, "canary") == {"404"}


def test_access_lines_are_switched_on_in_every_worker(server: RunningServer) -> None:
    def workers() -> set[int]:
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        return {line["worker"] for line in lines if line["event"] == "request"}

    answers(server)
    assert not workers()

    new_connections.put(
        f"http://{server.admin}/admin/v1/log", json={"access": True}
    ).raise_for_status()

    def both() -> bool:
        answers(server)
        return workers() == {0, 1}

    wait_until(both, "no access lines of both workers")


def test_admin_doors_come_back_when_the_supervisor_died(server: RunningServer) -> None:
    anabranch(server, "rollback", "ctr", "--version", "2")
    place = f"http://{server.admin}/admin/v1/models/ctr/reload"
    before = new_connections.post(place, json={}).json()["id"]
    ready = json.loads((server.log.parent / "ready.json").read_bytes())
    os.kill(ready["supervisor"], signal.SIGKILL)

    assert answers(server) == {"2"}

    def back() -> bool:
        try:
            return bool(model(server)["state"] == "READY")
        except httpx.HTTPError:
            return False

    wait_until(back, "the admin port did not come back")
    assert new_connections.post(place, json={}).json()["id"] != before
    earlier = new_connections.get(f"http://{server.admin}/admin/v1/operations/{before}")
    assert earlier.status_code == 404
    assert "has been replaced" in earlier.json()["error"]
    assert "held at" in anabranch(server, "status")[0]
    anabranch(server, "unpin", "ctr")
    assert answers(server) == {"3"}


def test_the_status_page_shows_all_workers_and_the_last_operations(server: RunningServer) -> None:
    printed, _ = anabranch(server, "rollback", "ctr", "--version", "2", "--json")

    page = new_connections.get(f"http://{server.admin}/").text

    for pid in server.ready["workers"]:  # type: ignore[attr-defined]
        assert f">{pid}<" in page
    for shown in ("held at 2", json.loads(printed)["id"], "rollback", "kept", "Ready"):
        assert shown in page


def test_commands_say_what_cannot_be(server: RunningServer, repository: Path, onnx: Path) -> None:
    assert "model 'nope' is not known" in anabranch(server, "load", "nope", code=1)[1]
    assert "version 9" in anabranch(server, "rollback", "ctr", "--version", "9", code=1)[1]
    assert "delta 1" in anabranch(server, "rollback", "ctr", "--version", "2+1", code=1)[1]

    broken = Path(publish_version(repository / "ctr", onnx, version=4).path, "model.onnx")
    broken.write_bytes(broken.read_bytes()[:-1] + b"x")
    said = anabranch(server, "reload", "ctr", "--force", code=1)[1]

    assert "version 4 is not served: " in said
    assert "sha256" in said
    assert str(repository) not in said
    assert answers(server) == {"3"}
    assert model(server)["last_error"]["version"] == 4
    assert "version 4" in anabranch(server, "status")[0]
