"""When connections end although their peers would keep them, and what peers see of it."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from anabranch_server.doors import DoorContext
from anabranch_server.http.tenure import Tenure
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.graphs import scale_model
from anabranch_testing.http_doors import Peer, http_door, infer_request

JSON = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}'
COLD = b"GET /cold/word HTTP/1.1\r\nHost: test\r\n\r\n"


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
def context(tmp_path: Path, observed: Observed) -> Iterator[DoorContext]:
    with door_context({"scale": scale_model(tmp_path)}, observed=observed) as context:
        yield context


def test_ages_lie_within_a_tenth() -> None:
    tenure = Tenure(3600.0)
    ages = np.array([tenure.age_s() for _ in range(1000)])
    assert ages.min() >= 3240
    assert ages.max() <= 3960
    assert ages.std() > 100
    assert Tenure(0.0).age_s() == math.inf


@pytest.mark.parametrize("request_bytes", [infer_request(JSON), COLD])
def test_an_old_connection_closes_after_an_answer(
    context: DoorContext, observed: Observed, request_bytes: bytes
) -> None:
    closed: list[int] = []
    tenure = Tenure(0.5, lambda: closed.append(1))
    with http_door(context, tenure=tenure) as door, Peer(door) as peer:
        answers = 0
        while "connection" not in (answer := peer.ask(request_bytes)).headers:
            answers += 1
            assert answer.status == 200

        assert answers > 0
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert peer.rest() == b""
    assert closed == [1]
    assert observed.cuts == []


@pytest.mark.parametrize("request_bytes", [infer_request(JSON), COLD])
def test_a_surplus_closes_as_many_as_it_says(context: DoorContext, request_bytes: bytes) -> None:
    tenure = Tenure()
    with http_door(context, tenure=tenure) as door:
        peers = [Peer(door) for _ in range(5)]
        for peer in peers:
            assert "connection" not in peer.ask(request_bytes).headers
        tenure.surplus = 2
        answers = [peer.ask(request_bytes) for peer in peers]
        again = [peer.ask(request_bytes) for peer in peers[2:]]
        for peer in peers:
            peer.socket.close()

    assert [answer.status for answer in answers] == [200] * 5
    assert [answer.headers.get("connection") for answer in answers] == ["close"] * 2 + [None] * 3
    assert [answer.headers.get("connection") for answer in again] == [None] * 3
    assert tenure.surplus == 0


def test_what_is_pipelined_is_answered_before_the_end(context: DoorContext) -> None:
    tenure = Tenure()
    with http_door(context, tenure=tenure) as door, Peer(door) as peer:
        peer.ask(infer_request(JSON))
        tenure.surplus = 1
        peer.send(infer_request(JSON) * 20)
        answers = [peer.read() for _ in range(20)]
        assert peer.rest() == b""
    assert [answer.headers.get("connection") for answer in answers] == [None] * 19 + ["close"]
