"""The Triton that is measured beside us is real, gives the model's scores, and goes away."""

import json
import socket
import urllib.request
from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import ctr_mlp
from anabranch_testing.corpus import is_required
from peers.triton import TritonServer, started_triton


def require_triton() -> None:
    """Skip where `make peers` did not run; continuous integration requires it and fails instead."""
    if TritonServer.is_installed():
        return
    if is_required("triton"):
        pytest.fail("Triton is required: make peers")
    pytest.skip("Triton is not installed: make peers")


@pytest.mark.slow
def test_triton_scores_the_benchmark_s_body_as_onnx_runtime_does(tmp_path: Path) -> None:
    require_triton()
    material = ctr_mlp.write(tmp_path, [3])
    body = material.body("json", 3)
    session = onnxruntime.InferenceSession(material.graph, providers=["CPUExecutionProvider"])
    feeds = {ctr_mlp.INPUT: ctr_mlp.make_rows(3)}
    expected = cast(NDArray[np.float32], session.run([ctr_mlp.OUTPUT], feeds)[0])

    with started_triton(material.graph, tmp_path / "triton", core=0) as triton:
        request = urllib.request.Request(
            f"http://{triton.http}{body.target}", body.path.read_bytes(), body.headers
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.load(response)

    np.testing.assert_allclose(answer["outputs"][0]["data"], expected[:, 0], rtol=0, atol=1e-6)
    host, port = triton.http.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=2)


def test_a_triton_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    require_triton()
    graph = tmp_path / "model.onnx"
    graph.write_bytes(b"not a model")

    with (
        pytest.raises(RuntimeError, match=r"(?s)ended with .*INVALID_PROTOBUF|failed to load"),
        started_triton(graph, tmp_path / "triton", core=0),
    ):
        pass
