import json
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI

from anabranch_runtime.catalog import ServingState
from anabranch_server.app import create_app
from anabranch_server.doors import DoorContext
from anabranch_server.lifecycle import Phase
from anabranch_testing.asgi import fetch
from anabranch_testing.catalogs import publish
from anabranch_testing.doors import door_context
from anabranch_testing.graphs import lookup_model, scale_model


@pytest.fixture
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorContext]:
    folder = tmp_path_factory.mktemp("models")
    models = {"scale": scale_model(folder / "scale"), "lookup": lookup_model(folder / "lookup")}
    with door_context(models) as context:
        yield context


@pytest.fixture
def app(context: DoorContext) -> FastAPI:
    return create_app(context)


def error_of(response: httpx.Response) -> str:
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    text = body["error"]
    assert isinstance(text, str)
    return text


def test_the_server_names_itself(app: FastAPI) -> None:
    body = fetch(app, "/v2").json()

    assert (body["name"], body["version"]) == ("anabranch", "0.1.0")
    assert "binary_tensor_data" in body["extensions"]


@pytest.mark.parametrize("probe", ["live", "ready"])
def test_a_serving_process_is_live_and_ready_with_empty_bodies(app: FastAPI, probe: str) -> None:
    response = fetch(app, f"/v2/health/{probe}")

    assert (response.status_code, response.content) == (200, b"")


def test_a_draining_process_is_live_but_not_ready(context: DoorContext, app: FastAPI) -> None:
    context.lifecycle.advance(Phase.DRAINING)

    assert fetch(app, "/v2/health/live").status_code == 200
    response = fetch(app, "/v2/health/ready")
    assert response.status_code == 503
    assert "draining" in error_of(response)


def test_models_are_listed_by_name(app: FastAPI) -> None:
    assert fetch(app, "/v2/models").json() == {"models": ["lookup", "scale"]}


@pytest.mark.parametrize("place", ["", "/versions/42", "/versions/stable"])
def test_metadata_has_tensors_and_loaded_versions(app: FastAPI, place: str) -> None:
    assert fetch(app, f"/v2/models/scale{place}").json() == {
        "name": "scale",
        "versions": ["42"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
    }


def test_a_model_is_ready_with_an_empty_body(app: FastAPI) -> None:
    response = fetch(app, "/v2/models/scale/ready")

    assert (response.status_code, response.content) == (200, b"")


def test_a_known_model_without_a_version_is_unavailable(context: DoorContext, app: FastAPI) -> None:
    publish(context.catalog, "empty", ServingState({}))

    for route in ("", "/ready", "/config"):
        response = fetch(app, f"/v2/models/empty{route}")
        assert response.status_code == 503
        assert "no version is loaded" in error_of(response)


def test_the_configuration_says_how_rows_and_queue_are_treated(app: FastAPI) -> None:
    body = fetch(app, "/v2/models/scale/config").json()

    assert body["max_batch_size"] == 65536
    assert body["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
    assert body["user_inputs"] == []
    assert body["rows"] == {"independent": True, "reason": "", "min_rows": 1, "max_rows": 65536}
    assert body["batching"]["merge"] is True
    assert body["queue"]["max_requests"] == 1024


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/scale/stats",
        "/v2/models/scale/versions/42/stats",
        "/v2/models/stats",
    ],
)
def test_statistics_are_said_to_be_missing(app: FastAPI, path: str) -> None:
    response = fetch(app, path)

    assert response.status_code == 501
    assert "/metrics" in error_of(response)


@pytest.mark.parametrize(
    "path",
    [
        "/v2/models/nope",
        "/v2/models/nope/ready",
        "/v2/models/scale/versions/7",
        "/v2/models/scale/versions/007",
        "/v2/models/scale/versions/nolabel/ready",
        "/nowhere",
        "/v2/",
        "/v2/models/scale/",
        "/v2/models/scale/ready/",
        "/v2/models//ready",
    ],
)
def test_what_is_not_there_is_404(app: FastAPI, path: str) -> None:
    response = fetch(app, path)

    assert response.status_code == 404
    error_of(response)


def test_a_wrong_verb_is_405_and_names_the_right_one(app: FastAPI) -> None:
    response = fetch(app, "/v2/models/scale", method="POST")

    assert response.status_code == 405
    assert response.headers["allow"] == "GET"
    assert "expected GET" in error_of(response)


@pytest.mark.parametrize("place", ["index", "models/scale/load", "models/scale/unload"])
def test_repository_calls_are_refused_on_the_data_port(app: FastAPI, place: str) -> None:
    response = fetch(app, f"/v2/repository/{place}", method="POST")

    assert response.status_code == 403
    assert "admin port" in error_of(response)


@pytest.mark.parametrize("path", ["/v2", "/nowhere", "/v2/health/ready", "/docs"])
def test_request_ids_are_echoed_on_every_answer(app: FastAPI, path: str) -> None:
    sent = fetch(app, path, headers={"X-Request-Id": "abc-1"})
    unfit = fetch(app, path, headers={"X-Request-Id": "x" * 129})
    absent = fetch(app, path)

    assert sent.headers["x-request-id"] == "abc-1"
    assert 0 < len(unfit.headers["x-request-id"]) <= 128
    assert absent.headers["x-request-id"] != unfit.headers["x-request-id"]


def test_an_unforeseen_failure_is_logged_and_answered_without_detail(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    @app.get("/fails")
    async def fails() -> None:
        raise RuntimeError("secret detail")

    response = fetch(app, "/fails", headers={"X-Request-Id": "r-9"})

    assert response.status_code == 500
    assert error_of(response) == "internal error, request r-9"
    assert "secret detail" in caplog.text


def test_the_documentation_is_complete_without_the_internet(app: FastAPI) -> None:
    page = fetch(app, "/docs")
    policy = page.headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "http" not in page.text.replace("<!doctype html>", "")
    for asset in ("swagger-ui.css", "swagger-ui-bundle.js", "start.js"):
        assert f"docs/{asset}" in page.text
        assert fetch(app, f"/docs/{asset}").status_code == 200


def test_the_document_describes_the_infer_routes_with_requests_that_work(app: FastAPI) -> None:
    document = fetch(app, "/openapi.json").json()

    assert document["openapi"] == "3.0.3"
    for path in ("/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer"):
        operation = document["paths"][path]["post"]
        examples = operation["requestBody"]["content"]["application/json"]["examples"]
        assert examples["lookup"]["value"] == {
            "inputs": [{"name": "ids", "datatype": "INT64", "shape": [1], "data": [0]}]
        }
        assert {"200", "400", "404", "413", "415", "503", "504"} <= set(operation["responses"])


def test_every_reference_of_the_document_leads_somewhere(app: FastAPI) -> None:
    document = fetch(app, "/openapi.json").json()
    found = set()

    def look(node: object) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                found.add(node["$ref"])
            for value in node.values():
                look(value)
        elif isinstance(node, list):
            for value in node:
                look(value)

    look(document)
    for reference in found:
        target = document
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
    assert "422" not in json.dumps(document)


def test_properties_are_described_by_their_docstrings(app: FastAPI) -> None:
    schemas = fetch(app, "/openapi.json").json()["components"]["schemas"]

    assert schemas["ModelMetadata"]["description"] == "One version of a model."
    versions = schemas["ModelMetadata"]["properties"]["versions"]
    assert versions["description"] == "every loaded version, ascending."


@pytest.mark.parametrize("path", ["/", "/docs/", "/v1/models/scale:predict"])
def test_other_routes_are_told_where_the_api_is_described(app: FastAPI, path: str) -> None:
    response = fetch(app, path)

    assert response.status_code == 404
    assert error_of(response) == f"no such route: GET {path}; the API is described at /docs"
