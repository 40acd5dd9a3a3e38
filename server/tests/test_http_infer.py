import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.settings import QueueSettings
from anabranch_server.limits import Limits
from anabranch_testing.doors import Observed, door_context
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import lookup_model, scale_model
from anabranch_testing.http_doors import HttpDoor, Peer, http_door, infer_request
from anabranch_wire.errors import Internal, Overloaded

PATIENT = QueueSettings(default_timeout_s=30.0)  # the machine may be busy
ROWS = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)
SCORES = [4321.0, 8765.0]


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
    models = {
        "scale": scale_model(folder / "scale"),
        "lookup": lookup_model(folder / "lookup"),
        "a b/c": scale_model(folder / "odd"),
    }
    limits = Limits(max_decompressed_bytes=100_000)
    with (
        door_context(
            models, observed=observed, backend=backend, limits=limits, queue=PATIENT
        ) as context,
        http_door(context) as door,
    ):
        yield door


@pytest.fixture
def peer(door: HttpDoor) -> Iterator[Peer]:
    with Peer(door) as peer:
        yield peer


def json_body(rows: np.ndarray = ROWS, **fields: object) -> bytes:
    tensor = {
        "name": "x",
        "shape": list(rows.shape),
        "datatype": "FP32",
        "data": rows.ravel().tolist(),
    }
    return json.dumps({"inputs": [tensor], **fields}).encode()


def binary_body(rows: np.ndarray = ROWS, **fields: object) -> tuple[bytes, int]:
    tensor = {
        "name": "x",
        "shape": list(rows.shape),
        "datatype": "FP32",
        "parameters": {"binary_data_size": rows.nbytes},
    }
    head = json.dumps({"inputs": [tensor], **fields}).encode()
    return head + rows.tobytes(), len(head)


IN_BINARY = {"binary_data_output": True}


def test_json_is_scored(peer: Peer) -> None:
    response = peer.ask(infer_request(json_body(id="r-1")))

    assert response.status == 200
    assert response.headers["content-type"] == "application/json"
    assert response.headers["anabranch-model-version"] == "42"
    assert response.headers["anabranch-delta"] == "17"
    assert response.headers["x-request-id"]
    assert response.headers["date"]
    assert json.loads(response.body) == {
        "model_name": "scale",
        "model_version": "42",
        "id": "r-1",
        "parameters": {"delta": 17},
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 1], "data": SCORES}],
    }


def test_binary_is_scored(peer: Peer) -> None:
    body, json_bytes = binary_body(parameters=IN_BINARY)

    response = peer.ask(infer_request(body, json_bytes=json_bytes))

    assert response.status == 200
    assert response.headers["content-type"] == "application/octet-stream"
    size = int(response.headers["inference-header-content-length"])
    assert json.loads(response.body[:size])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert np.frombuffer(response.body[size:], np.float32).tolist() == SCORES


def test_a_raw_body_is_scored(peer: Peer) -> None:
    response = peer.ask(infer_request(ROWS[:1].tobytes(), json_bytes=0))

    size = int(response.headers["inference-header-content-length"])
    assert np.frombuffer(response.body[size:], np.float32).tolist() == SCORES[:1]


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/scale/versions/42/infer",
        "/v2/models/scale/versions/stable/infer",
        "/v2/models/sc%61le/infer",
        "/v2/models/a%20b%2Fc/infer",
        "/v2/models/scale/infer?trace=1",
        "http://somewhere:80/v2/models/scale/infer",
    ],
)
def test_versions_labels_and_spellings_of_a_path(peer: Peer, path: str) -> None:
    assert peer.ask(infer_request(json_body(), path=path)).status == 200


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v2/models/other/infer", "model 'other' is not known"),
        ("/v2/models/scale/versions/7/infer", "model 'scale' has no loaded version 7; loaded: 42"),
        ("/v2/models/scale/versions/canary/infer", "no version or label 'canary'; loaded: 42"),
        ("/v2/models/%ff/infer", "is not known"),
    ],
)
def test_what_is_not_served_is_not_found(peer: Peer, path: str, text: str) -> None:
    response = peer.ask(infer_request(json_body(), path=path))

    assert response.status == 404
    assert response.headers["content-type"] == "application/json"
    assert text in json.loads(response.body)["error"]


@pytest.mark.parametrize(
    "path", ["/v2/models/scale/infer/", "/v2/models//infer", "/v2/models/a/b/infer", "/v2/infer"]
)
def test_paths_beside_the_hot_ones_are_cold(peer: Peer, path: str) -> None:
    response = peer.ask(infer_request(json_body(), path=path))

    assert (response.status, response.body) == (404, b'{"detail":"Not Found"}')


# --- compression ----------------------------------------------------------------------------------

MANY = np.tile(ROWS, (500, 1))


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda data: zlib.compress(data)[2:-4]),
        ("GZIP", lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
        ("identity", lambda data: data),
    ],
)
def test_compressed_bodies_are_scored(
    peer: Peer, coding: str, packed: Callable[[bytes], bytes]
) -> None:
    body, json_bytes = binary_body(MANY)
    headers = {"Content-Encoding": coding}

    response = peer.ask(infer_request(packed(body), json_bytes=json_bytes, headers=headers))

    assert response.status == 200, response.body
    assert json.loads(response.body)["outputs"][0]["data"] == SCORES * 500


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("gzip;q=0.5, deflate;q=0.8, br", "deflate"),
        ("gzip;q=0, *", None),
        ("br, identity", None),
        ("gzip;q=high", None),
        ("", None),
    ],
)
def test_answers_are_compressed_as_accepted(peer: Peer, accepted: str, chosen: str | None) -> None:
    body, json_bytes = binary_body(MANY, parameters=IN_BINARY)
    headers = {"Accept-Encoding": accepted}

    response = peer.ask(infer_request(body, json_bytes=json_bytes, headers=headers))

    assert response.headers.get("content-encoding") == chosen
    plain = response.body
    if chosen is not None:
        plain = gzip.decompress(plain) if chosen == "gzip" else zlib.decompress(plain)
        assert len(response.body) < len(plain)
    size = int(response.headers["inference-header-content-length"])
    assert np.frombuffer(plain[size:], np.float32).tolist() == SCORES * 500


def test_small_answers_are_not_compressed(peer: Peer) -> None:
    response = peer.ask(infer_request(json_body(), headers={"Accept-Encoding": "gzip"}))

    assert "content-encoding" not in response.headers


@pytest.mark.parametrize(
    ("coding", "body", "status", "text"),
    [
        ("br", b"x", 415, "Content-Encoding 'br': expected gzip, deflate or identity"),
        ("gzip, gzip", b"x", 415, "Content-Encoding 'gzip, gzip'"),
        ("gzip", b"x", 400, "body ends in the middle of its gzip stream"),
        ("gzip", b"", 400, "body ends in the middle of its gzip stream"),
        ("gzip", json_body(), 400, "body is not gzip"),
        ("gzip", gzip.compress(json_body())[:-3], 400, "body ends in the middle"),
        ("gzip", gzip.compress(json_body()) + b"x", 400, "body "),
        ("gzip", gzip.compress(json_body())[:-8] + bytes(8), 400, "body is not gzip"),
        ("deflate", zlib.compress(json_body()) + b"x", 400, "1 bytes behind the deflate stream"),
        ("deflate", b"\xff\xff\xff", 400, "body is not deflate"),
        ("gzip", gzip.compress(bytes(10**7)), 413, "larger than 100000 bytes after gzip"),
        ("gzip", gzip.compress(b"") * 20_000, 413, "more than 16384 gzip members"),
    ],
)
def test_damaged_or_huge_compressed_bodies_are_refused(
    peer: Peer, coding: str, body: bytes, status: int, text: str
) -> None:
    response = peer.ask(infer_request(body, headers={"Content-Encoding": coding}))

    assert response.status == status
    assert text in json.loads(response.body)["error"]
    assert peer.ask(infer_request(json_body())).status == 200


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
        "",
    ],
)
def test_content_types_that_are_read(peer: Peer, value: str) -> None:
    response = peer.ask(infer_request(json_body(), headers={"Content-Type": value}))

    assert response.status == 200


@pytest.mark.parametrize("value", ["text/plain", "multipart/form-data", "x"])
def test_other_content_types_are_not(peer: Peer, value: str) -> None:
    response = peer.ask(infer_request(json_body(), headers={"Content-Type": value}))

    assert response.status == 415
    assert "expected application/json" in json.loads(response.body)["error"]
    assert peer.ask(infer_request(json_body())).status == 200


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("abc-1 ~", True), ("x" * 128, True), ("x" * 129, False), ("a\tb", False), ("\xe9", False)],
)
def test_request_ids_are_echoed_or_replaced(peer: Peer, sent: str, kept: bool) -> None:
    for body in (json_body(), b"{}"):
        response = peer.ask(infer_request(body, headers={"X-Request-Id": sent}))

        assert (response.headers["x-request-id"] == sent) is kept
        assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Inference-Header-Content-Length", "-1"),
        ("Inference-Header-Content-Length", "1e3"),
        ("Inference-Header-Content-Length", "9" * 30),
        ("Anabranch-Timeout-Ms", "soon"),
        ("Anabranch-Timeout-Ms", "-1"),
        ("Anabranch-Timeout-Ms", "nan"),
        ("Anabranch-Priority", "high"),
        ("Anabranch-Priority", "+1"),
    ],
)
def test_malformed_numbers_in_headers_are_refused(peer: Peer, name: str, value: str) -> None:
    response = peer.ask(infer_request(json_body(), headers={name: value}))

    assert response.status == 400
    assert f"{name} {value[:40]!r}" in json.loads(response.body)["error"]


@pytest.mark.parametrize("second", ["same", "other", "empty"])
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("Content-Type", "application/json"),
        ("Inference-Header-Content-Length", "100"),
        ("Anabranch-Timeout-Ms", "9000"),
        ("Anabranch-Priority", "1"),
        ("X-Request-Id", "r"),
    ],
)
def test_a_header_of_one_value_is_not_taken_twice(
    peer: Peer, name: str, first: str, second: str
) -> None:
    value = {"same": first, "other": f"{first}0", "empty": ""}[second]
    headers = {name: first, name.lower(): value}  # names differ to a dict only

    response = peer.ask(infer_request(json_body(), headers=headers))

    assert response.status == 400
    assert json.loads(response.body) == {
        "error": f"header '{name.lower()}' is given twice: expected one"
    }
    assert peer.ask(infer_request(json_body())).status == 200


def test_several_content_codings_are_not_read_however_they_are_given(peer: Peer) -> None:
    for headers in (
        {"Content-Encoding": "gzip, gzip"},
        {"Content-Encoding": "gzip", "content-encoding": "gzip"},
    ):
        response = peer.ask(infer_request(gzip.compress(json_body()), headers=headers))

        assert response.status == 415
        assert "Content-Encoding 'gzip, gzip'" in json.loads(response.body)["error"]


def test_repeated_lists_and_foreign_headers_are_joined(peer: Peer) -> None:
    headers = {"Accept-Encoding": "gzip;q=0.1", "accept-encoding": "deflate", "X-A": "", "x-a": ""}

    response = peer.ask(infer_request(json_body(MANY), headers=headers))

    assert (response.status, response.headers["content-encoding"]) == (200, "deflate")


@pytest.mark.parametrize(
    "headers", [{"Anabranch-Timeout-Ms": "0"}, {"Anabranch-Timeout-Ms": "0.0"}]
)
def test_no_time_left_is_no_answer(peer: Peer, headers: dict[str, str]) -> None:
    response = peer.ask(infer_request(json_body(), headers=headers))

    assert response.status == 504
    assert "deadline" in json.loads(response.body)["error"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_verbs_are_not_allowed(peer: Peer, method: str) -> None:
    response = peer.ask(infer_request(b"", method=method))

    assert (response.status, response.headers["allow"]) == (405, "POST")
    assert json.loads(response.body) == {"error": "expected POST"}


def test_the_answer_to_head_has_no_body(peer: Peer) -> None:
    for headers in ({}, {"Content-Type": "text/plain"}):
        peer.send(infer_request(b"", method="HEAD", headers=headers))

        assert peer.read(has_body=False).status == 405
    assert peer.ask(infer_request(json_body())).status == 200


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"inputs": []}', b"\x00" * 100])
def test_malformed_bodies_are_the_callers_fault(peer: Peer, body: bytes) -> None:
    response = peer.ask(infer_request(body))

    assert response.status == 400
    assert set(json.loads(response.body)) == {"error"}


def test_an_id_out_of_range_is_the_callers_fault(peer: Peer) -> None:
    tensor = {"name": "ids", "shape": [1], "datatype": "INT64", "data": [5]}
    body = json.dumps({"inputs": [tensor]}).encode()

    response = peer.ask(infer_request(body, path="/v2/models/lookup/infer"))

    assert response.status == 400


@pytest.mark.parametrize(
    "fault", [RuntimeError("/secret/path"), Internal("/secret/path"), ZeroDivisionError()]
)
def test_faults_of_the_server_are_logged_and_not_told(
    peer: Peer, backend: GatedBackend, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    backend.fault = fault
    try:
        response = peer.ask(infer_request(json_body(), headers={"X-Request-Id": "r-9"}))
    finally:
        backend.fault = None

    assert response.status == 500
    assert json.loads(response.body) == {"error": "internal error, request r-9"}
    record = next(r for r in caplog.records if getattr(r, "event", "") == "internal_error")
    assert getattr(record, "request_id", None) == "r-9"
    assert record.exc_info is not None


def test_overload_says_when_to_come_back(peer: Peer, backend: GatedBackend) -> None:
    backend.fault = Overloaded("full", retry_after_s=0.25)
    try:
        response = peer.ask(infer_request(json_body()))
    finally:
        backend.fault = None

    assert response.status == 503
    assert response.headers["retry-after"] == "1"
    assert response.headers["anabranch-retry-after-ms"] == "250"


def test_the_observer_hears_of_every_request(
    door: HttpDoor, peer: Peer, observed: Observed
) -> None:
    observed.scores.clear()
    observed.failures.clear()
    body = json_body()
    sizes = len(body), len(peer.ask(infer_request(body)).body)
    peer.ask(infer_request(b"{}"))
    peer.ask(infer_request(body, path="/v2/models/other/infer"))

    assert observed.scores == [("scale", "oip_http", *sizes)]
    assert observed.failures == [
        ("scale", "oip_http", "INVALID_ARGUMENT"),
        ("other", "oip_http", "NOT_FOUND"),
    ]
