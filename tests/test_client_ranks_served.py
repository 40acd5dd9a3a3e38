"""The client's four faces against one really started server: same requests, same answers."""

import asyncio
import importlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # comes without types
import pytest

from anabranch_client import AsyncClient, Client, ClientOptions, HedgeRules, Ranking, RetryRules
from anabranch_testing import new_connections
from anabranch_testing.client_faces import FACES, Face, FaceName, open_face
from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.spinning_models import write_spinning_model
from anabranch_wire.errors import DeadlineExceeded, InvalidInput, NotFound, Overloaded

USER = {"age": 20.0}
IDS = [5, 6, 7]
PRICES = [1.0, 3.5, 2.0]
TAGS = [[1, 2], [], [3]]
BUSY = {"age": 1.0, "spins": 3000.0}  # some hundreds of milliseconds
VERY_BUSY = {"age": 1.0, "spins": 20000.0}  # some seconds


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    """Two servers of one executor each, with room for four requests that wait."""
    repository = tmp_path_factory.mktemp("repository")
    write_spinning_model(
        repository / "spin", serving="executors: {per_worker: 1}\nqueue: {max_requests: 4}\n"
    )
    options = ("--settle-s", "0", "--workers", "1")
    with (
        started_server(repository, tmp_path_factory.mktemp("first"), *options) as first,
        started_server(repository, tmp_path_factory.mktemp("second"), *options) as second,
    ):
        yield [first, second]


def addresses(servers: list[RunningServer]) -> Any:
    return lambda scheme: [getattr(server, scheme) for server in servers]


@pytest.fixture(params=FACES)
def face_name(request: pytest.FixtureRequest) -> FaceName:
    name: FaceName = request.param
    return name


@pytest.fixture
def face(servers: list[RunningServer], face_name: FaceName) -> Iterator[Face]:
    with open_face(face_name, addresses(servers[:1])) as face:
        yield face


def metric(server: RunningServer, name: str, **labels: str) -> float:
    """Add up the samples of a metric whose labels are these."""
    text = new_connections.get(f"http://{server.metrics}/metrics").text
    total = 0.0
    for line in text.splitlines():
        if line.startswith(f"{name}{{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            total += float(line.rpartition(" ")[2])
    return total


def reaches(server: RunningServer, name: str, value: float) -> None:
    """Wait until a gauge of the model is as high as `value`."""
    end = time.monotonic() + 20
    while metric(server, name, model="spin") < value:
        assert time.monotonic() < end, f"{name} never was {value}"
        time.sleep(0.02)


def settles(server: RunningServer) -> None:
    """Wait until nothing is left of earlier calls."""
    end = time.monotonic() + 30
    while metric(server, "anabranch_requests_in_flight", model="spin") > 0:
        assert time.monotonic() < end, "something is still in flight"
        time.sleep(0.02)


def seen(ranking: Ranking) -> tuple[object, ...]:
    return (
        ranking.ids.tolist(),
        ranking.scores.tolist(),
        ranking.positions.tolist(),
        {name: rows.tolist() for name, rows in ranking.outputs.items()},
        (ranking.model, ranking.version, ranking.delta),
        dict(ranking.bad_candidates),
    )


WANTED: tuple[object, ...] = (
    [6, 5, 7],
    [23.5, 23.0, 23.0],
    [1, 0, 2],
    {"ctr": [23.5, 23.0, 23.0], "both": [[3.5, 3.5], [1.0, 1.0], [2.0, 2.0]]},
    ("spin", "1", 0),
    {},
)

CANDIDATES = {
    "lists": {"item_id": IDS, "price": PRICES, "tags": TAGS},
    "tuples": {"item_id": tuple(IDS), "price": tuple(PRICES), "tags": ([1, 2, 3], [2, 0, 1])},
    "numpy": {
        "item_id": np.array(IDS, np.int32),
        "price": np.array(PRICES, np.float64),
        "tags": (np.array([1, 2, 3]), np.array([2, 0, 1])),
    },
    "strided": {
        "item_id": np.array([5, 0, 6, 0, 7, 0])[::2],
        "price": np.array(PRICES[::-1], np.float32)[::-1],
        "tags": TAGS,
    },
    "numpy scalars": {
        "item_id": [np.int64(number) for number in IDS],
        "price": [np.float32(number) for number in PRICES],
        "tags": [np.array(row, np.int64) for row in TAGS],
    },
    "arrow": pa.table({"item_id": IDS, "price": PRICES, "tags": TAGS}),
    "arrow sliced": pa.table(
        {"item_id": [0, *IDS], "price": [0.0, *PRICES], "tags": [[9], *TAGS]}
    ).slice(1),
    "arrow batch": pa.record_batch(
        {"item_id": pa.array(IDS), "price": pa.array(PRICES, pa.float32()), "tags": TAGS}
    ),
    "arrow chunks": {
        "item_id": pa.chunked_array([IDS[:1], IDS[1:]]),
        "price": pa.array(PRICES),
        "tags": pa.chunked_array([TAGS[:2], TAGS[2:]]),
    },
}


@pytest.mark.parametrize("candidates", CANDIDATES.values(), ids=CANDIDATES.keys())
def test_every_form_of_candidates_is_ranked_alike(face: Face, candidates: Any) -> None:
    ranking = face.rank("spin", USER, candidates, outputs=["ctr", "both"])

    assert seen(ranking) == WANTED
    assert ranking.ids.dtype == np.int64
    assert [ranking.scores.dtype.name, ranking.positions.dtype.name] == ["float32", "uint32"]
    assert ranking.explanation is None


def test_data_frames_of_pandas(face: Face) -> None:
    pandas: Any = importlib.import_module("pandas")
    frame = pandas.DataFrame({"item_id": IDS, "price": PRICES, "tags": TAGS})
    assert seen(face.rank("spin", USER, frame, outputs=["ctr", "both"])) == WANTED


def test_vectors_and_the_best_ones(face: Face) -> None:
    candidates = {
        "item_id": IDS,
        "price": PRICES,
        "shape": np.array([[1, 2], [3, 4], [5, 6]], np.float32),
    }

    ranking = face.rank("spin", USER, candidates, top_k=2, outputs=["both"])

    assert ranking.ids.tolist() == [6, 7]
    assert ranking.outputs["both"].tolist() == [[6.5, 7.5], [7.0, 8.0]]
    assert len(ranking) == 2


def test_no_candidates_are_an_empty_ranking(face: Face) -> None:
    forms: tuple[dict[str, Any], ...] = (
        {"item_id": [], "price": []},
        {"item_id": np.zeros(0, np.int64), "price": np.zeros(0, np.float32)},
    )
    for candidates in forms:
        ranking = face.rank("spin", USER, candidates, outputs=["ctr"])
        assert (len(ranking), ranking.ids.tolist()) == (0, [])


def test_an_explanation_says_what_stood_in_and_how_long_it_took(face: Face) -> None:
    ranking = face.rank("spin", USER, {"item_id": IDS, "price": PRICES}, explain=True)

    assert ranking.explanation is not None
    assert ranking.explanation.defaulted == ("spins", "shape", "tags")
    assert ranking.explanation.step is None
    assert {"decode", "queue", "run"} <= set(ranking.explanation.stages_ms)


def test_numbers_that_are_none_are_not_taken_for_missing_ones(face: Face) -> None:
    for prices in ([1.0, float("nan"), 2.0], np.array([1, np.nan, 2], np.float32)):
        ranking = face.rank("spin", USER, {"item_id": IDS, "price": prices})
        assert ranking.positions.tolist() == [2, 0, 1]
        assert np.isnan(ranking.scores[2])


@pytest.mark.parametrize(
    ("user", "candidates", "said"),
    [
        (USER, {"item_id": IDS}, "price"),
        (USER, {"item_id": IDS, "price": PRICES[:2]}, "price"),
        (USER, {"item_id": IDS, "price": PRICES, "tag": TAGS}, "did you mean"),
        ({"price": 1.0}, {"item_id": IDS}, "price"),
        (
            USER,
            {"item_id": IDS, "price": [1.0, "12", 2.0]},
            "feature 'price', candidate 1: expected a number, got",
        ),
    ],
)
def test_what_the_server_refuses_is_invalid_input_with_its_words(
    face: Face, user: Any, candidates: Any, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        face.rank("spin", user, candidates)


def test_a_model_that_is_not_there(face: Face) -> None:
    with pytest.raises(NotFound, match="nothing"):
        face.rank("nothing", USER, {"item_id": IDS, "price": PRICES})
    with pytest.raises(NotFound):
        face.rank("spin", USER, {"item_id": IDS, "price": PRICES}, version=9)
    with pytest.raises(NotFound):
        face.rank("spin", USER, {"item_id": IDS, "price": PRICES}, version="canary")


def test_scoring_and_metadata_are_alike(face: Face, servers: list[RunningServer]) -> None:
    inputs = {
        "age": np.full((3, 1), 20, np.float32),
        "spins": np.zeros((3, 1), np.float32),
        "item": np.array(IDS)[:, None],
        "price": np.array(PRICES, np.float32)[:, None],
        "shape": np.zeros((3, 2), np.float32),
        "tags": np.array([[1, 2, 0, 2], [0, 0, 0, 0], [3, 0, 0, 1]]),
    }

    scores = face.score("spin", inputs, outputs=["ctr"], version=1, request_id="mine")

    assert scores.outputs["ctr"].ravel().tolist() == [23.0, 23.5, 23.0]
    assert (scores.model, scores.version, scores.delta) == ("spin", "1", 0)
    assert scores.request_id == "mine"
    assert face.call("ready") is True
    with Client(f"http://{servers[0].http}") as client:
        assert face.call("metadata", "spin") == client.metadata("spin")


@pytest.mark.alone
def test_deadlines_end_a_call_here_and_there(face: Face, servers: list[RunningServer]) -> None:
    face.rank("spin", USER, {"item_id": IDS, "price": PRICES})
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        face.rank("spin", BUSY, {"item_id": IDS, "price": PRICES}, timeout_s=0.1)
    assert time.monotonic() - began < 2.0
    # Whoever comes next does not wait for more than what was computed already.
    face.rank("spin", USER, {"item_id": IDS, "price": PRICES}, timeout_s=20)


def test_more_than_it_can_do_is_overloaded_and_retries_stay_within_their_budget(
    servers: list[RunningServer], face_name: FaceName
) -> None:
    options = ClientOptions(retries=RetryRules(attempts=4, base_s=0.001, most_s=0.01))
    user = {"age": 1.0, "spins": 200.0}
    ends: list[str] = []
    before = metric(servers[0], "anabranch_requests_total", model="spin")

    with open_face(face_name, addresses(servers[:1]), options) as face:

        def call() -> None:
            for _ in range(20):
                try:
                    face.rank("spin", user, {"item_id": IDS, "price": PRICES}, timeout_s=10)
                    ends.append("ranked")
                except Overloaded as error:
                    ends.append("overloaded" if error.retry_after_s > 0 else "without advice")

        threads = [threading.Thread(target=call) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = face.counts()

    assert len(ends) == 240  # nothing else was raised
    assert set(ends) == {"ranked", "overloaded"}
    assert counts.requests == 240
    assert 0 < counts.retries <= 10 + 0.1 * 240 + 60  # a token a second beside the share
    asked = metric(servers[0], "anabranch_requests_total", model="spin") - before
    assert asked == counts.requests + counts.retries


@pytest.mark.alone
def test_a_slow_call_is_answered_by_another_server_and_cancelled_at_the_slow_one(
    servers: list[RunningServer], face_name: FaceName
) -> None:
    options = ClientOptions(hedges=HedgeRules(after_s=0.1))
    candidates = {"item_id": IDS, "price": PRICES}

    def cancelled() -> float:
        return sum(
            metric(server, "anabranch_requests_dropped_total", reason="cancelled")
            for server in servers
        )

    before = cancelled()
    with (
        open_face(face_name, addresses(servers), options) as face,
        Client(f"grpc://{servers[0].grpc}") as other,
    ):
        for _ in range(100):  # a hedge is earned by twenty requests
            face.rank("spin", USER, candidates, timeout_s=30)
        assert face.counts().hedges <= 5
        settles(servers[0])
        blocking = threading.Thread(
            target=other.rank,
            args=("spin", VERY_BUSY, candidates),
            kwargs={"timeout_s": 60},
        )
        blocking.start()
        reaches(servers[0], "anabranch_requests_in_flight", 1)
        hedged = face.counts().hedges
        took = []
        for _ in range(2):
            began = time.monotonic()
            assert face.rank("spin", USER, candidates, timeout_s=50).ids.tolist() == [6, 7, 5]
            took.append(time.monotonic() - began)
        assert face.counts().hedges > hedged
        assert blocking.is_alive(), f"the blocked server was done too early: {took}"
        blocking.join()

    end = time.monotonic() + 20
    while cancelled() <= before:
        assert time.monotonic() < end, "the server never dropped the call that was cancelled"
        time.sleep(0.1)


@pytest.mark.alone
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_cancelled_task_cancels_its_call_at_the_server(
    servers: list[RunningServer], scheme: str
) -> None:
    server = servers[0]
    candidates = {"item_id": IDS, "price": PRICES}
    settles(server)
    before = metric(server, "anabranch_requests_dropped_total", reason="cancelled")

    async def scenario() -> None:
        async with AsyncClient(f"{scheme}://{getattr(server, scheme)}") as client:
            blocking = asyncio.ensure_future(
                client.rank("spin", VERY_BUSY, candidates, timeout_s=50)
            )
            await asyncio.to_thread(reaches, server, "anabranch_requests_in_flight", 1)
            left = asyncio.ensure_future(client.rank("spin", USER, candidates, timeout_s=50))
            await asyncio.to_thread(reaches, server, "anabranch_requests_in_flight", 2)
            left.cancel()
            with pytest.raises(asyncio.CancelledError):
                await left
            await blocking

    asyncio.run(scenario())

    end = time.monotonic() + 20
    while metric(server, "anabranch_requests_dropped_total", reason="cancelled") <= before:
        assert time.monotonic() < end, "the server never dropped the call that was cancelled"
        time.sleep(0.1)


def test_many_threads_share_a_client(face: Face) -> None:
    wrong: list[object] = []

    def call(price: float) -> None:
        for _ in range(20):
            candidates = {"item_id": [1, 2], "price": [price, price + 1]}
            try:
                ranking = face.rank("spin", USER, candidates, timeout_s=60)
            except Overloaded:
                continue
            if ranking.scores.tolist() != [21 + price, 20 + price]:
                wrong.append(ranking)

    threads = [threading.Thread(target=call, args=(float(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
