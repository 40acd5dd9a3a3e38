"""The cache folder is deleted under a running server, and then a worker dies."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from anabranch_publish import publish_version
from anabranch_testing import new_connections
from anabranch_testing.graphs import scale_model
from anabranch_testing.lengths import is_soak
from anabranch_testing.server_processes import ServerProcesses, wait_until
from anabranch_testing.servers import RunningServer, started_server

REQUEST = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def damage(folder: Path) -> None:
    for graph in folder.rglob("*.onnx"):
        graph.write_bytes(b"not a graph")


def status(server: RunningServer) -> int:
    """Return what a new connection is answered with; 0 where nobody answers."""
    try:
        return new_connections.post(
            f"http://{server.http}/v2/models/ctr/infer", json=REQUEST
        ).status_code
    except httpx.TransportError:
        return 0


EACH = [(1, damage), (2, remove)]
EVERY = [*EACH, (1, remove), (2, damage)]


@pytest.mark.soak
@pytest.mark.parametrize(("workers", "harm"), EVERY if is_soak() else EACH)
def test_a_worker_that_is_started_again_serves_what_the_cache_no_longer_has(
    tmp_path: Path, workers: int, harm: Callable[[Path], None]
) -> None:
    (tmp_path / "models").mkdir()
    made = scale_model(tmp_path / "made").path
    for version in (1, 2):
        publish_version(tmp_path / "models" / "ctr", made, version=version)
    (tmp_path / "models" / "ctr" / "serving.yaml").write_text("format: 1\nversions: all\n")
    scratch = tmp_path / "server"
    scratch.mkdir()
    with started_server(tmp_path / "models", scratch, "--workers", str(workers)) as server:
        processes = ServerProcesses(server.process.pid)
        assert sum(1 for _ in (scratch / "cache").rglob("*.onnx")) == 2
        harm(scratch / "cache")

        os.kill(server.workers[0], signal.SIGKILL)

        def has_joined() -> bool:
            shown = new_connections.get(f"http://{server.admin}/admin/v1/workers").json()["workers"]
            restarts = sum(one["restarts"] for one in shown)
            return (restarts, len(shown)) == (1, workers) and all(
                one["state"] == "serving" and one["snapshots"] == {"ctr": "2"} for one in shown
            )

        wait_until(has_joined, 60.0, "every worker serves the model")
        assert {status(server) for _ in range(20)} == {200}
        assert "cannot_join" not in server.log.read_text()
        assert len(processes.of("worker")) == workers
