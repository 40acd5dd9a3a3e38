"""The document describes ranking, and its examples work."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch_server.app import create_app
from anabranch_testing.doors import door_context
from anabranch_testing.graphs import scale_model
from anabranch_testing.http_doors import Peer, http_door, infer_request
from anabranch_testing.looked_up import key_of, open_store, view_of
from anabranch_testing.ranked_models import (
    ranked_lookups,
    ranked_lookups_plan,
    ranked_model,
    ranked_plan,
)

PATHS = (
    "/v1/models/{model}:rank",
    "/v1/models/{model}/versions/{version}:rank",
    "/v1/models/{model}/labels/{label}:rank",
)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder: Path = tmp_path_factory.mktemp("models")
    models = {
        "ranked": ranked_model(folder / "ranked"),
        "looked": ranked_lookups(folder / "looked"),
        "plain": scale_model(folder / "plain"),
    }
    stores = {"looked": view_of(open_store(folder / "store"))}
    rankings = {"ranked": ranked_plan(), "looked": ranked_lookups_plan()}
    with (
        door_context(models, stores=stores, rankings=rankings) as context,
        http_door(context, app=create_app(context)) as door,
        Peer(door) as peer,
    ):
        yield peer


def document(peer: Peer) -> dict[str, Any]:
    response = peer.ask(b"GET /openapi.json HTTP/1.1\r\nHost: t\r\n\r\n")
    found: dict[str, Any] = json.loads(response.body)
    return found


def examples(peer: Peer, path: str) -> dict[str, dict[str, object]]:
    content = document(peer)["paths"][path]["post"]["requestBody"]["content"]
    found: dict[str, dict[str, object]] = content["application/json"]["examples"]
    return found


@pytest.mark.parametrize("path", PATHS)
def test_every_route_is_described_with_an_example_of_each_model_that_ranks(
    peer: Peer, path: str
) -> None:
    assert list(examples(peer, path)) == ["looked", "ranked"]


def test_an_example_has_a_value_for_every_feature(peer: Peer) -> None:
    assert examples(peer, PATHS[0])["ranked"]["value"] == {
        "user": {"age": 0.5, "country": "de"},
        "candidates": {"item_id": [1, 2], "price": [0.5, 0.5], "tags": [[1], [2]]},
        "top_k": 2,
    }
    assert examples(peer, PATHS[0])["looked"]["value"] == {
        "user": {"clicks": [1]},
        "candidates": {
            "x": [0.5, 0.5],
            "city": [1, 2],
            "tags": [{"ids": [1], "weights": [1.0]}, {"ids": [2], "weights": [1.0]}],
            "pair": [[1, 1], [2, 2]],
        },
        "top_k": 2,
    }


def test_an_example_is_answered(peer: Peer) -> None:
    body = json.dumps(examples(peer, PATHS[0])["ranked"]["value"]).encode()

    response = peer.ask(infer_request(body, path="/v1/models/ranked:rank"))

    assert response.status == 200
    assert len(json.loads(response.body)["ids"]) == 2


def test_an_answer_has_the_properties_that_the_document_names(peer: Peer) -> None:
    schemas = document(peer)["components"]["schemas"]
    known = {"clicks": [key_of(1)]}
    candidates = {"city": [key_of(1)], "pair": [[key_of(1), key_of(2)]]}
    asked = {"user": known, "candidates": candidates, "outputs": ["y"], "explain": True, "id": "r"}

    response = peer.ask(infer_request(json.dumps(asked).encode(), path="/v1/models/looked:rank"))

    answer = json.loads(response.body)
    properties = schemas["RankResponse"]["properties"]
    assert set(answer) == set(properties) - {"bad_candidates"}
    assert set(answer["explain"]) == set(schemas["RankExplanation"]["properties"])


def test_where_no_model_ranks_the_example_is_that_of_the_page() -> None:
    with (
        door_context({}) as context,
        http_door(context, app=create_app(context)) as door,
        Peer(door) as peer,
    ):
        assert list(examples(peer, PATHS[0])) == ["few"]
