"""Users sent once for all rows, through every door of a started server."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from anabranch_testing.graphs import write_graph
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.triton_clients import retire_http_client

GRAPH = """
match (float[N, 3] user, float[N, 3] item) => (float[N] score)
<int64[1] last = {1}>
{ both = Mul(user, item) score = ReduceSum <keepdims: int = 0> (both, last) }
"""
ITEMS = np.arange(15, dtype=np.float32).reshape(5, 3)
ONE = np.array([[1, 10, 100]], np.float32)
EACH = np.arange(15, 0, -1, dtype=np.float32).reshape(5, 3)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_graph(repository / "match" / "1", GRAPH)
    (repository / "match" / "1" / "model.yaml").write_text("user_inputs: [user]\n")
    with started_server(repository, tmp_path_factory.mktemp("s"), "--settle-s", "0") as running:
        yield running


class Caller:
    """Scores through one door of `server`."""

    def __init__(self, server: RunningServer, door: str) -> None:
        self.binary = door == "binary"
        self.module: Any = tritonclient.grpc if door == "grpc" else tritonclient.http
        address = server.grpc if door == "grpc" else server.http
        self.client = self.module.InferenceServerClient(address)
        self.options = {} if door == "grpc" else {"binary_data": self.binary}

    def score(self, user: NDArray[np.float32], items: NDArray[np.float32]) -> NDArray[np.float32]:
        inputs = []
        for name, array in (("user", user), ("item", items)):
            tensor = self.module.InferInput(name, list(array.shape), "FP32")
            tensor.set_data_from_numpy(array, **self.options)
            inputs.append(tensor)
        answer: NDArray[np.float32] = self.client.infer("match", inputs).as_numpy("score")
        return answer


@pytest.fixture(params=["json", "binary", "grpc"])
def caller(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Caller]:
    caller = Caller(server, request.param)
    yield caller
    if request.param == "grpc":
        caller.client.close()
    else:
        retire_http_client(caller.client)


def test_one_user_stands_for_all_rows_and_each_row_may_have_its_own(caller: Caller) -> None:
    for _ in range(3):  # a remembered head must mean the same as a new one
        np.testing.assert_array_equal(caller.score(ONE, ITEMS), ITEMS @ ONE[0])
        np.testing.assert_array_equal(caller.score(EACH, ITEMS), (EACH * ITEMS).sum(axis=1))
        np.testing.assert_array_equal(caller.score(ONE, ITEMS[:1]), ITEMS[:1] @ ONE[0])


def test_another_number_of_users_is_refused(caller: Caller) -> None:
    with pytest.raises(InferenceServerException, match="'user' has 2, 'item' has 5; user may"):
        caller.score(EACH[:2], ITEMS)
    with pytest.raises(InferenceServerException, match="'user' has 5, 'item' has 1"):
        caller.score(EACH, ITEMS[:1])


def test_metadata_and_configuration_show_user_inputs(server: RunningServer) -> None:
    base = f"http://{server.http}/v2/models/match"
    with urllib.request.urlopen(base, timeout=20) as answer:
        inputs = {tensor["name"]: tensor["shape"] for tensor in json.load(answer)["inputs"]}
    with urllib.request.urlopen(f"{base}/config", timeout=20) as answer:
        configuration = json.load(answer)

    assert inputs == {"user": [-1, 3], "item": [-1, 3]}
    assert configuration["user_inputs"] == ["user"]
