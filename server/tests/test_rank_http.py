import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_server.limits import Limits
from anabranch_testing.doors import FRESHNESS, Observed, door_context
from anabranch_testing.gated import GatedBackend
from anabranch_testing.http_doors import HttpDoor, Peer, Response, http_door, infer_request
from anabranch_testing.ranked_models import ranked_model, ranked_plan

ASKED = {
    "id": "req-7",
    "user": {"age": 20.0, "country": "at"},
    "candidates": {"item_id": [11, 12, 13], "price": [9.5, 12.0, 3.0]},
    "top_k": 2,
}
PATH = "/v1/models/ranked:rank"


@pytest.fixture(scope="module")
def observed() -> Observed:
    return Observed()


@pytest.fixture(scope="module")
def backend() -> GatedBackend:
    return GatedBackend()


@pytest.fixture(scope="module")
def door(
    tmp_path_factory: pytest.TempPathFactory, observed: Observed, backend: GatedBackend
) -> Iterator[HttpDoor]:
    folder: Path = tmp_path_factory.mktemp("models")
    names: list[str] = ["ranked", "a b/c", "reports"]
    models = {name: ranked_model(folder / str(at)) for at, name in enumerate(names)}
    rankings = dict.fromkeys(names, ranked_plan())
    rankings["reports"] = ranked_plan(report_bad=True)
    limits = Limits(max_json_depth=6, max_json_elements=500_000, max_string_bytes=100)
    with (
        door_context(
            models, observed=observed, backend=backend, limits=limits, rankings=rankings
        ) as context,
        http_door(context) as door,
    ):
        yield door


@pytest.fixture
def peer(door: HttpDoor) -> Iterator[Peer]:
    with Peer(door) as peer:
        yield peer


def rank(
    peer: Peer,
    document: object = ASKED,
    path: str = PATH,
    headers: dict[str, str] | None = None,
    method: str = "POST",
) -> Response:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return peer.ask(infer_request(body, path=path, headers=headers, method=method))


def refused(response: Response) -> tuple[int, str]:
    document = json.loads(response.body)
    assert list(document) == ["error"]
    return response.status, document["error"]


def test_an_answer_has_the_form_of_the_contract(peer: Peer) -> None:
    document = {**ASKED, "outputs": ["ctr", "both"], "explain": True}

    response = rank(peer, document, headers={"X-Request-Id": "abc"})

    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["anabranch-model-version"] == "42"
    assert response.headers["anabranch-delta"] == "17"
    assert response.headers["x-request-id"] == "abc"
    answer = json.loads(response.body)
    explain = answer.pop("explain")
    assert answer == {
        "model_name": "ranked",
        "model_version": "42",
        "delta": 17,
        "id": "req-7",
        "ids": [12, 11],
        "scores": [52.0, 49.5],
        "positions": [1, 0],
        "outputs": {"ctr": [52.0, 49.5], "both": [[20.0, 12.0], [20.0, 9.5]]},
    }
    assert explain["snapshot"]["step"] == FRESHNESS.step
    assert explain["snapshot"]["event_time"] == FRESHNESS.event_time
    assert explain["snapshot"]["age_s"] > 0
    assert explain["missed"] == {}
    assert explain["defaulted"] == ["tags"]
    assert set(explain["stages_ms"]) == {"decode", "queue", "lookup", "run"}
    assert min(explain["stages_ms"].values()) >= 0


def test_what_was_not_asked_for_is_not_answered(peer: Peer) -> None:
    document = {"user": ASKED["user"], "candidates": ASKED["candidates"]}

    answer = json.loads(rank(peer, document).body)

    assert set(answer) == {
        *("model_name", "model_version", "delta"),
        *("ids", "scores", "positions"),
    }


def test_bad_candidates_are_told_where_they_are_reported(peer: Peer) -> None:
    body = b'{"user":{"country":"at"},"candidates":{"item_id":[11,12],"price":["12",3]}}'

    good = json.loads(rank(peer, path="/v1/models/reports:rank").body)
    bad = json.loads(rank(peer, body, path="/v1/models/reports:rank").body)

    assert good["bad_candidates"] == []
    assert bad["ids"] == [12]
    (one,) = bad["bad_candidates"]
    assert one["position"] == 0
    assert one["error"] == """feature 'price', candidate 0: expected a number, got "12\""""


def test_a_candidate_at_fault_is_named(peer: Peer) -> None:
    body = b'{"user":{"country":"at"},"candidates":{"item_id":[11,12],"price":[3,"12"]}}'

    assert refused(rank(peer, body)) == (
        400,
        """feature 'price', candidate 1: expected a number, got "12\"""",
    )


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/ranked/versions/42:rank",
        "/v1/models/ranked/labels/stable:rank",
        "/v1/models/r%61nked:rank",
        "/v1/models/ranked%3Arank",
        "/v1/models/ranked/versions/42%3arank",
        "/v1/models/a%20b%2Fc:rank",
        "/v1/models/a%20b%2Fc/labels/st%61ble:rank",
        "/v1/models/ranked:rank?trace=1",
        "http://somewhere:80/v1/models/ranked:rank",
    ],
)
def test_versions_labels_and_spellings_of_a_path(peer: Peer, path: str) -> None:
    assert rank(peer, path=path).status == 200


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/models/other:rank", "model 'other' is not known"),
        ("/v1/models/ranked/versions/7:rank", "has no loaded version 7; loaded: 42"),
        ("/v1/models/ranked/labels/canary:rank", "no version or label 'canary'; loaded: 42"),
        ("/v1/models/ranked/versions/stable:rank", "version 'stable': expected digits"),
        ("/v1/models/ranked/versions/042:rank", "version '042': expected digits"),
        ("/v1/models/ranked/labels/42:rank", "label '42': expected a lower-case word"),
        ("/v1/models/%ff:rank", "is not known"),
    ],
)
def test_what_is_not_served_is_not_found(peer: Peer, path: str, text: str) -> None:
    status, error = refused(rank(peer, path=path))

    assert status == 404
    assert text in error


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/ranked:ranks",
        "/v1/models/ranked/versions/42/labels/stable:rank",
        "/v1/models/ranked/versions/:rank",
        "/v1/models/:rank",
        "/v2/models/ranked:rank",
    ],
)
def test_other_paths_are_not_hot(peer: Peer, path: str) -> None:
    response = rank(peer, path=path)

    assert response.status == 404
    assert "x-request-id" not in response.headers


def test_a_ranking_is_posted(peer: Peer) -> None:
    response = rank(peer, method="GET")

    assert response.status == 405
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 400, "request JSON: input data was truncated"),
        (b"{", 400, "request JSON: input data was truncated"),
        (b"[]", 400, "request JSON: expected object, got array"),
        (b"{}", 400, "request JSON: missing field 'candidates'"),
        (b'{"candidates":[]}', 400, "request JSON: candidates: expected object, got array"),
        (
            b'{"candidates":{},"usr":{}}',
            400,
            "request JSON: unknown field 'usr': expected 'candidates', 'user', 'top_k', 'outputs', "
            "'explain', 'id', 'parameters'",
        ),
        (
            b'{"candidates":{},"parameters":{"timeout_ms":1}}',
            400,
            "request JSON: parameters: unknown field 'timeout_ms': expected 'timeout', 'priority', "
            "'routing_key'",
        ),
        (b'{"candidates":{},"top_k":-1}', 400, "top_k -1: expected an integer from 0 to"),
        (b'{"candidates":{},"top_k":1.5}', 400, "request JSON: top_k: expected int"),
        (b'{"candidates":{},"top_k":NaN}', 400, "request JSON: top_k: expected int"),
        (b'{"candidates":{},"id":7}', 400, "request JSON: id: expected str"),
        (b'{"candidates":{},"explain":1}', 400, "request JSON: explain: expected bool"),
        (b'{"candidates":{},"outputs":"ctr"}', 400, "request JSON: outputs: expected array"),
        (b'{"candidates":{},"outputs":[7]}', 400, "request JSON: outputs[0]: expected str"),
        (
            b'{"candidates":{},"parameters":{"timeout":-1}}',
            400,
            "parameter 'timeout' -1: expected an integer from 0 to",
        ),
        (
            b'{"candidates":{},"parameters":{"priority":-1}}',
            400,
            "parameter 'priority' -1: expected an integer from 0 to",
        ),
        (b'{"candidates":{"item_id":' + b"[" * 9 + b"]" * 9 + b"}}", 413, "request JSON: "),
        (b'{"candidates":{"item_id":[' + b"1," * 600_000 + b"1]}}", 413, "request JSON: "),
        (b'{"candidates":{"item_id":[1],"' + b"x" * 700 + b'":[1]}}', 413, "request JSON: "),
    ],
)
def test_malformed_bodies_are_refused_with_what_was_expected(
    peer: Peer, body: bytes, status: int, text: str
) -> None:
    found, error = refused(rank(peer, body))

    assert found == status
    assert text in error


def test_nulls_stand_for_what_is_left_out(peer: Peer) -> None:
    nothing = {"id": None, "top_k": None, "outputs": None, "explain": None, "parameters": None}
    more = {"parameters": {"timeout": None, "priority": None, "routing_key": None}}

    for fields in (nothing, more):
        assert rank(peer, {**ASKED, **fields}).status == 200


def test_a_binary_part_is_refused(peer: Peer) -> None:
    body = json.dumps(ASKED).encode()

    whole = peer.ask(infer_request(body, path=PATH, json_bytes=len(body)))
    part = peer.ask(infer_request(body + b"1234", path=PATH, json_bytes=len(body)))

    assert whole.status == 200
    assert refused(part)[0] == 400


def test_long_and_compressed_bodies_are_ranked(peer: Peer) -> None:
    count = 20_000
    prices = [float(at % 1000) for at in range(count)]
    document = {**ASKED, "candidates": {"item_id": list(range(count)), "price": prices}}
    body = json.dumps(document).encode()
    assert len(body) > 131_072

    plain = rank(peer, body)
    packed = rank(peer, gzip.compress(body), headers={"Content-Encoding": "gzip"})

    assert plain.status == packed.status == 200
    assert json.loads(plain.body)["ids"] == [999, 1999]
    assert json.loads(packed.body)["scores"] == json.loads(plain.body)["scores"]


def test_no_candidates_are_ranked_without_computing(peer: Peer, backend: GatedBackend) -> None:
    computed = backend.computed
    document = {**ASKED, "candidates": {"item_id": [], "price": []}, "outputs": ["both"]}

    answer = json.loads(rank(peer, document).body)

    assert (answer["ids"], answer["scores"], answer["positions"]) == ([], [], [])
    assert answer["outputs"] == {"both": []}
    assert backend.computed == computed


def test_bare_tokens_are_numbers_where_numbers_are_expected(peer: Peer) -> None:
    body = (
        b'{"user":{"country":"NaN \\"Infinity","age":-Infinity},'
        b'"candidates":{"item_id":[1,2],"price":[NaN, Infinity]},"outputs":["cvr"]}'
    )

    response = rank(peer, body)

    assert response.status == 200
    assert b'"scores":[NaN,NaN]' in response.body
    assert b'"cvr":[NaN,Infinity]' in response.body


def test_a_bad_candidate_with_a_bare_token_for_its_id_is_reported(peer: Peer) -> None:
    body = b'{"user":{"country":"at"},"candidates":{"item_id":[NaN,12],"price":[1,3]}}'

    answer = json.loads(rank(peer, body, path="/v1/models/reports:rank").body)

    assert answer["ids"] == [12]
    assert [one["position"] for one in answer["bad_candidates"]] == [0]


def test_requests_and_failures_are_counted_under_their_protocol(
    peer: Peer, observed: Observed
) -> None:
    observed.scores.clear()
    observed.failures.clear()
    body = json.dumps(ASKED).encode()

    answer = rank(peer, body)
    rank(peer, b"{")

    assert observed.scores == [("ranked", "rank_http", len(body), len(answer.body))]
    assert observed.failures == [("ranked", "rank_http", "INVALID_ARGUMENT")]


def test_what_happened_to_features_is_told(peer: Peer, observed: Observed) -> None:
    observed.rankings.clear()
    user = {"country": "xx", "age": float("inf")}
    candidates = {
        "item_id": [1, 2, 3],
        "price": [1.0, float("nan"), 2.0],
        "tags": [[1, 2, 3, 4, 5], [], None],
    }

    assert rank(peer, {"user": user, "candidates": candidates}).status == 200

    ((model, counts, nan_scores),) = observed.rankings
    assert (model, nan_scores) == ("ranked", 1)
    #                          values, defaulted, unknown, truncated, out of range
    assert counts["age"] == [1, 0, 0, 0, 1]
    assert counts["country"] == [1, 0, 1, 0, 0]
    assert counts["item_id"] == [3, 0, 0, 0, 0]
    assert counts["price"] == [3, 0, 0, 0, 1]
    assert counts["tags"] == [3, 1, 0, 2, 0]


def test_pipelined_rankings_and_inferences_are_answered_in_order(door: HttpDoor) -> None:
    requests = [
        infer_request(json.dumps({**ASKED, "id": str(at)}).encode(), path=PATH) for at in range(20)
    ]
    empty = {**ASKED, "id": "none", "candidates": {"item_id": [], "price": []}}
    requests.insert(10, infer_request(json.dumps(empty).encode(), path=PATH))
    with Peer(door) as peer:
        peer.send(b"".join(requests))
        ids = [json.loads(peer.read().body)["id"] for _ in requests]

    assert ids == [*map(str, range(10)), "none", *map(str, range(10, 20))]
