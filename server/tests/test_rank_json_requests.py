import json

import pytest

from anabranch_runtime.ranking.requests import RankRequest
from anabranch_server.limits import Limits
from anabranch_server.ranking.json_requests import read_rank_json

LIMITS = Limits()


def read(text: bytes | bytearray) -> RankRequest:
    return read_rank_json(text, LIMITS)


def test_everything_that_a_request_may_say() -> None:
    request = read(
        b'{"id":"r-1","user":{"age": 3.5 },"candidates":{"item_id":[1, 2],"tags":[["a"],null]},'
        b'"top_k":2,"outputs":["ctr","cvr"],"explain":true,'
        b'"parameters":{"timeout":20000,"priority":1,"routing_key":"9001"}}'
    )

    assert request.form == "json"
    assert {name: bytes(column) for name, column in request.user.items()} == {"age": b"3.5"}
    assert {name: bytes(column) for name, column in request.candidates.items()} == {
        "item_id": b"[1, 2]",
        "tags": b'[["a"],null]',
    }
    assert (request.top_k, request.outputs, request.explain) == (2, ("ctr", "cvr"), True)
    assert (request.id, request.timeout_s, request.priority) == ("r-1", 0.02, 1)
    assert request.routing_key == "9001"


def test_what_a_request_leaves_out() -> None:
    request = read(b'{"candidates":{}}')

    assert (request.user, request.candidates) == ({}, {})
    assert (request.top_k, request.outputs, request.explain) == (0, (), False)
    assert (request.id, request.timeout_s, request.priority) == ("", None, 0)
    assert request.routing_key is None


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_columns_are_views_of_the_body(kind: type[bytes | bytearray]) -> None:
    body = kind(b'{"candidates":{"item_id":[1,2,3]}}')

    column = read(body).candidates["item_id"]

    assert isinstance(column, memoryview)
    if isinstance(body, bytearray):
        body[body.index(b"2")] = ord("7")
        assert bytes(column) == b"[1,7,3]"


def test_a_routing_key_may_be_a_number() -> None:
    assert read(b'{"candidates":{},"parameters":{"routing_key":7}}').routing_key == 7


def test_columns_with_bare_tokens_are_as_they_were_sent() -> None:
    request = read(
        b'{"user":{"age":-Infinity,"name":"NaN \\" Infinity"},'
        b'"candidates":{"price":[NaN, 1,Infinity],"NaN":[1]},"top_k":3}'
    )

    assert bytes(request.user["age"]) == b"-Infinity"
    assert json.loads(bytes(request.user["name"])) == 'NaN " Infinity'
    assert bytes(request.candidates["price"]) == b"[NaN, 1,Infinity]"
    assert bytes(request.candidates["NaN"]) == b"[1]"
    assert request.top_k == 3


def test_of_a_feature_given_twice_the_last_one_counts() -> None:
    request = read(b'{"candidates":{"a":[1],"a":[2]}}')

    assert bytes(request.candidates["a"]) == b"[2]"
