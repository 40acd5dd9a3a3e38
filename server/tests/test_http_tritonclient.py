import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.settings import QueueSettings
from anabranch_testing.doors import door_context
from anabranch_testing.graphs import scale_model, write_graph
from anabranch_testing.http_doors import HttpDoor, http_door
from anabranch_testing.triton_clients import retire_http_client
from anabranch_wire.tensors import TensorSpec

PATIENT = QueueSettings(default_timeout_s=30.0)  # the machine may be busy
ROWS = np.random.default_rng(5).random((700, 4), np.float32)
SCORES = ROWS @ np.array([[1], [10], [100], [1000]], np.float32)


def words_model(folder: Path) -> DenseModel:
    """Sends BYTES and BOOL back as they came."""
    path = write_graph(
        folder,
        "words (string[N] s, bool[N] b) => (string[N] t, bool[N] c) "
        "{ t = Identity(s) c = Identity(b) }",
    )
    return DenseModel(
        path,
        (TensorSpec("s", "BYTES", (-1,)), TensorSpec("b", "BOOL", (-1,))),
        (TensorSpec("t", "BYTES", (-1,)), TensorSpec("c", "BOOL", (-1,))),
        RowLayout(True, 1, (0, 0), (0, 0)),
    )


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDoor]:
    folder = tmp_path_factory.mktemp("models")
    models = {"scale": scale_model(folder / "scale"), "words": words_model(folder / "words")}
    with door_context(models, queue=PATIENT) as context, http_door(context) as door:
        yield door


@pytest.fixture
def client(door: HttpDoor) -> Iterator[Any]:
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{door.port}")
    yield client
    retire_http_client(client)


def input_of(name: str, array: np.ndarray, datatype: str, *, binary: bool = True) -> Any:
    tensor = tritonclient.http.InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


CODINGS = [None, "gzip", "deflate"]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_every_form_scores_the_same(client: Any, binary_in: bool, binary_out: bool | None) -> None:
    outputs = None
    if binary_out is not None:
        outputs = [tritonclient.http.InferRequestedOutput("y", binary_data=binary_out)]

    result = client.infer(
        "scale",
        [input_of("x", ROWS, "FP32", binary=binary_in)],
        outputs=outputs,
        request_id="r-1",
        priority=1,
        timeout=20_000_000,
        headers={"X-Request-Id": "t-1"},
    )

    assert np.allclose(result.as_numpy("y"), SCORES, rtol=1e-6)
    response = result.get_response()
    assert (response["id"], response["model_version"]) == ("r-1", "42")
    assert response["parameters"] == {"delta": 17}


@pytest.mark.parametrize("sent", CODINGS)
@pytest.mark.parametrize("wanted", CODINGS)
def test_every_compression_scores_the_same(
    client: Any, sent: str | None, wanted: str | None
) -> None:
    for version in ("", "42"):
        result = client.infer(
            "scale",
            [input_of("x", ROWS, "FP32")],
            model_version=version,
            request_compression_algorithm=sent,
            response_compression_algorithm=wanted,
        )

        assert np.allclose(result.as_numpy("y"), SCORES, rtol=1e-6)


@pytest.mark.parametrize("binary", [True, False])
def test_strings_and_bools_come_back(client: Any, binary: bool) -> None:
    words = np.array(["", "größe", "a" * 1000], np.object_)
    flags = np.array([True, False, True])
    outputs = [
        tritonclient.http.InferRequestedOutput(name, binary_data=binary) for name in ("c", "t")
    ]

    result = client.infer(
        "words",
        [
            input_of("b", flags, "BOOL", binary=not binary),
            input_of("s", words, "BYTES", binary=binary),
        ],
        outputs=outputs,
    )

    assert [output["name"] for output in result.get_response()["outputs"]] == ["c", "t"]
    assert result.as_numpy("c").tolist() == flags.tolist()
    came = [word.decode() if isinstance(word, bytes) else word for word in result.as_numpy("t")]
    assert came == words.tolist()


def test_not_a_number_survives_json(client: Any) -> None:
    row = np.array([[np.nan, np.inf, -np.inf, 1]], np.float32)
    outputs = [tritonclient.http.InferRequestedOutput("y", binary_data=False)]

    result = client.infer("scale", [input_of("x", row, "FP32", binary=False)], outputs=outputs)

    assert np.isnan(result.as_numpy("y")).all()


def test_errors_arrive_with_their_text(client: Any) -> None:
    for name, array, text in (
        ("other", ROWS, "model 'other' is not known"),
        ("scale", ROWS[:, :3], "expected shape [-1, 4]"),
    ):
        with pytest.raises(InferenceServerException) as caught:
            client.infer(name, [input_of("x", array, "FP32")])
        assert text in caught.value.message()


def test_the_asyncio_client_scores(door: HttpDoor) -> None:
    async def run() -> None:
        async with tritonclient.http.aio.InferenceServerClient(f"127.0.0.1:{door.port}") as client:
            results = await asyncio.gather(
                *(client.infer("scale", [input_of("x", ROWS, "FP32")]) for _ in range(20))
            )
            for result in results:
                scores = result.as_numpy("y")
                assert scores is not None
                assert np.allclose(scores, SCORES, rtol=1e-6)

    asyncio.run(run())
