"""A started server whose version takes for ever to look at: deltas of other models are served."""

import os
import signal
from functools import partial
from pathlib import Path

import numpy as np

from anabranch_publish import Publisher, publish_version
from anabranch_testing import new_connections
from anabranch_testing.graphs import scale_model
from anabranch_testing.server_processes import ServerProcesses, wait_until
from anabranch_testing.servers import RunningServer, started_server

PATIENCE_S = 60.0
REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 0, 0, 0]}]}


def ask(server: RunningServer, model: str) -> tuple[str, float]:
    """Return the version that answers, and y."""
    url = f"http://{server.http}/v2/models/{model}/infer"
    answer = new_connections.post(url, json=REQUEST)
    answer.raise_for_status()
    told = answer.json()
    return str(told["model_version"]), float(told["outputs"][0]["data"][0])


def answers(server: RunningServer, model: str, expected: tuple[str, float]) -> bool:
    return ask(server, model) == expected


def test_deltas_are_served_while_a_version_of_another_model_is_looked_at(tmp_path: Path) -> None:
    graph = scale_model(tmp_path / "made").path
    root = tmp_path / "models"
    root.mkdir()
    for model in ("quick", "slow"):
        publish_version(root / model, graph, version=1)
    (tmp_path / "scratch").mkdir()
    with started_server(root, tmp_path / "scratch", "--poll-s", "0.1") as server:
        (loader,) = ServerProcesses(server.process.pid).of("loader")
        os.kill(loader, signal.SIGSTOP)
        try:
            publish_version(root / "slow", graph, version=2)
            for factor in (2.0, 3.0):
                with Publisher(root / "quick", version=1) as publisher:
                    draft = publisher.delta()
                    draft.dense({"w": np.full((4, 1), factor, np.float32)})
                    draft.publish()
                wait_until(partial(answers, server, "quick", ("1", factor)), PATIENCE_S, "a delta")
            assert ask(server, "slow") == ("1", 1.0)
        finally:
            os.kill(loader, signal.SIGCONT)
        wait_until(lambda: ask(server, "slow")[0] == "2", PATIENCE_S, "the version")
        assert ask(server, "quick") == ("1", 3.0)
        assert server.stop() == 0
