"""Values with rows in several tables, through the doors of a started server, against NumPy."""

import json
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import xxhash
from numpy.typing import NDArray

from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_testing.graphs import write_graph
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.triton_clients import retire_http_client
from anabranch_wire.tensors import datatype_of

GRAPH = """
joined (float[N, 4] users, float[N, 10] rows, float[N, 1] price) => (float[N, 1] score)
<float[15, 1] w = {WEIGHTS}>
{ all = Concat <axis: int = 1> (users, rows, price) score = MatMul(all, w) }
"""
YAML = """
user_inputs: [users]
features:
  - name: author
    side: candidate
    type: int64
    multi_hash: {method: quotient_remainder, num_buckets: 10, tables: [q, r], combine: sum}
  - name: maker
    side: candidate
    type: string
    default: nobody
    multi_hash:
      {method: hashes, functions: [xxh64, xxh64], num_buckets: 7, seed: 5, tables: [a, b],
       combine: concat}
  - name: city
    side: user
    type: int64
    multi_hash: {method: quotient_remainder, num_buckets: 10, tables: [r, q], combine: multiply}
  - {name: price, side: candidate, type: float32}
lookups:
  - {feature: author, table: r, output: {input: rows, columns: [0, 4]}}
  - {feature: maker, table: b, output: {input: rows, columns: [7, 10]}}
  - {feature: author, table: q, output: {input: rows, columns: [0, 4]}}
  - {feature: maker, table: a, output: {input: rows, columns: [4, 7]}}
  - {feature: city, table: q, output: {input: users, columns: [0, 4]}}
  - {feature: city, table: r, output: {input: users, columns: [0, 4]}}
ranking: {id: author, score: {output: score}}
"""
WEIGHTS = np.arange(1, 16, dtype=np.float32)[:, None] / 16
DIMS: Final = {"q": 4, "r": 4, "a": 3, "b": 3}

Array = NDArray[Any]


def table(name: str) -> Array:
    rng = np.random.default_rng(len(name) + ord(name[0]))
    return rng.standard_normal((10, DIMS[name])).astype(np.float32)


def row(name: str, key: int) -> Array:
    """A row, or zeros where the table has none."""
    values: Array = table(name)[key] if 0 <= key < 10 else np.zeros(DIMS[name], np.float32)
    return values


def maker_key(name: str) -> int:
    return xxhash.xxh64_intdigest(name.encode(), seed=5) % 7


def scores(
    city: int, authors: Sequence[int], makers: Sequence[str], prices: Sequence[float]
) -> Array:
    """What the model gives; Python's // and % are those of quotient and remainder."""
    user = row("r", city // 10) * row("q", city % 10)
    rows = [
        np.concatenate(
            [
                user,
                row("q", author // 10) + row("r", author % 10),
                row("a", maker_key(maker)),
                row("b", maker_key(maker)),
                [price],
            ]
        )
        for author, maker, price in zip(authors, makers, prices, strict=True)
    ]
    found: Array = (np.array(rows) @ WEIGHTS)[:, 0]
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    root = tmp_path_factory.mktemp("repository")
    (root / "models" / "joined").mkdir(parents=True)
    numbers = ", ".join(str(float(number)) for number in WEIGHTS[:, 0])
    graph = write_graph(root / "exported", GRAPH.replace("WEIGHTS", numbers))
    (root / "model.yaml").write_text(YAML)
    publish_version(
        root / "models" / "joined",
        graph,
        model_yaml=root / "model.yaml",
        tables={name: Rows(np.arange(10), table(name)) for name in DIMS},
    )
    with started_server(root / "models", tmp_path_factory.mktemp("server")) as running:
        yield running


AUTHORS = [35, 99, 0, -7, 1234]
MAKERS = ["ada", "", "ünïcode", "ada", "x"]
PRICES = [0.5, 1.5, 2.0, 0.25, 3.0]
CITY = 42


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
@pytest.mark.parametrize("users", [1, 5])
def test_keys_of_each_table_are_inputs(server: RunningServer, module: Any, users: int) -> None:
    request: dict[str, Array] = {
        "price": np.array(PRICES, np.float32)[:, None],
        "author.r": np.array(AUTHORS) % 10,
        "author.q": np.array(AUTHORS)[:, None] // 10,
        "maker.a": np.array([maker_key(name) for name in MAKERS]),
        "maker.b": np.array([maker_key(name) for name in MAKERS]),
        "city.r": np.full(users, CITY // 10),
        "city.q": np.full(users, CITY % 10),
    }
    is_http = module is tritonclient.http
    client = module.InferenceServerClient(server.http if is_http else server.grpc)
    inputs = []
    for name, array in request.items():
        tensor = module.InferInput(name, list(array.shape), datatype_of(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    found = client.infer("joined", inputs).as_numpy("score")
    if is_http:
        retire_http_client(client)
    else:
        client.close()

    expected = scores(CITY, AUTHORS, MAKERS, PRICES)
    np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=1e-5)


def post(server: RunningServer, body: object) -> Any:
    request = urllib.request.Request(
        f"http://{server.http}/v1/models/joined:rank",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_ranking_makes_all_keys_of_a_value(server: RunningServer) -> None:
    answer = post(
        server,
        {
            "user": {"city": CITY},
            "candidates": {"author": AUTHORS, "maker": MAKERS, "price": PRICES},
        },
    )

    expected = scores(CITY, AUTHORS, MAKERS, PRICES)
    order = np.argsort(-expected)
    assert answer["positions"] == order.tolist()
    assert answer["ids"] == [AUTHORS[position] for position in order]
    np.testing.assert_allclose(answer["scores"], expected[order], rtol=0, atol=1e-5)


def test_defaults_are_hashed_as_what_is_sent(server: RunningServer) -> None:
    answer = post(
        server, {"user": {"city": CITY}, "candidates": {"author": AUTHORS, "price": PRICES}}
    )

    expected = np.sort(scores(CITY, AUTHORS, ["nobody"] * 5, PRICES))[::-1]
    np.testing.assert_allclose(answer["scores"], expected, rtol=0, atol=1e-5)


def test_metadata_names_an_input_for_each_table(server: RunningServer) -> None:
    with urllib.request.urlopen(f"http://{server.http}/v2/models/joined", timeout=30) as answer:
        inputs = [one["name"] for one in json.load(answer)["inputs"]]
    assert inputs == ["price", "author.r", "maker.b", "author.q", "maker.a", "city.q", "city.r"]
