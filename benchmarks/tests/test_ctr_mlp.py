"""The bodies of every form carry the same rows to the same model, and the loop measures it."""

import json
import struct
from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import bare_loop
import ctr_mlp
from anabranch_wire import oip

ROWS = (1, 3)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> ctr_mlp.Material:
    return ctr_mlp.write(tmp_path_factory.mktemp("material"), ROWS)


def test_the_same_call_writes_the_same_bytes(material: ctr_mlp.Material, tmp_path: Path) -> None:
    again = ctr_mlp.write(tmp_path, ROWS)

    assert again.graph.read_bytes() == material.graph.read_bytes()
    for one, other in zip(again.bodies, material.bodies, strict=True):
        assert one.path.read_bytes() == other.path.read_bytes()


@pytest.mark.parametrize("rows", ROWS)
def test_a_binary_body_is_its_json_header_and_the_raw_rows(
    material: ctr_mlp.Material, rows: int
) -> None:
    body = material.body("binary", rows)
    content = body.path.read_bytes()
    split = int(body.headers["Inference-Header-Content-Length"])
    declared = json.loads(content[:split])["inputs"][0]

    assert declared["shape"] == [rows, ctr_mlp.COLUMNS]
    assert declared["parameters"]["binary_data_size"] == len(content) - split
    values = np.frombuffer(content[split:], "<f4").reshape(declared["shape"])
    np.testing.assert_array_equal(values, ctr_mlp.make_rows(rows))


@pytest.mark.parametrize("rows", ROWS)
def test_a_json_body_holds_the_same_float32_values(material: ctr_mlp.Material, rows: int) -> None:
    content = material.body("json", rows).path.read_bytes()
    tensor = json.loads(content)["inputs"][0]

    values = np.array(tensor["data"], np.float32).reshape(tensor["shape"])
    np.testing.assert_array_equal(values, ctr_mlp.make_rows(rows))
    assert len(content) < 10 * values.size


@pytest.mark.parametrize("rows", ROWS)
def test_a_grpc_body_is_one_framed_message(material: ctr_mlp.Material, rows: int) -> None:
    content = material.body("grpc", rows).path.read_bytes()
    compressed, length = struct.unpack(">?I", content[:5])
    request = oip.ModelInferRequest.FromString(content[5:])

    assert not compressed
    assert length == len(content) - 5
    values = np.frombuffer(request.raw_input_contents[0], "<f4").reshape(request.inputs[0].shape)
    np.testing.assert_array_equal(values, ctr_mlp.make_rows(rows))


def test_a_body_that_was_not_written_is_a_key_error(material: ctr_mlp.Material) -> None:
    with pytest.raises(KeyError, match="grpc with 7 rows"):
        material.body("grpc", 7)


def test_scores_are_neither_all_alike_nor_saturated(material: ctr_mlp.Material) -> None:
    session = onnxruntime.InferenceSession(material.graph, providers=["CPUExecutionProvider"])

    feeds = {ctr_mlp.INPUT: ctr_mlp.make_rows(64)}
    scores = cast(NDArray[np.float32], session.run([ctr_mlp.OUTPUT], feeds)[0])

    assert scores.shape == (64, 1)
    assert 0.01 < scores.min() < scores.max() < 0.99
    assert scores.std() > 0.01


def test_the_bare_loop_counts_only_time_inside_runs(material: ctr_mlp.Material) -> None:
    loop = bare_loop.measure(material.graph, {ctr_mlp.INPUT: ctr_mlp.make_rows(3)}, seconds=0.05)

    assert loop.rows == 3
    assert 0 < loop.p50_ms <= loop.p99_ms
    assert loop.runs_per_s > 0
