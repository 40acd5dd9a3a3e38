import asyncio
import dataclasses
import json
import logging
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from anabranch_server.administration import ActionRequest, TableView
from anabranch_server.app import create_admin_app
from anabranch_server.describe import WorkerView
from anabranch_server.describe.differences import (
    DifferenceView,
    TableDifferenceView,
    WeightDifferenceView,
)
from anabranch_testing.administrations import MemoryAdministration, model_view
from anabranch_testing.asgi import fetch
from anabranch_wire.errors import Conflict, InvalidInput, NotFound

WORKER = WorkerView(0, 4244, "serving", 1764417600.0, 1, {"scale": "42+17"})
CONFIG = {"http_port": 8000, "auth": {"token_file": "***"}}


@pytest.fixture
def administration() -> MemoryAdministration:
    model = model_view("scale", 42, labels={"stable": 42})
    return MemoryAdministration({"scale": model}, CONFIG, [WORKER])


@pytest.fixture
def app(administration: MemoryAdministration) -> FastAPI:
    return create_admin_app(administration, "0.1.0")


def send(app: FastAPI, method: str, path: str, value: object = None) -> httpx.Response:
    content = None if value is None else json.dumps(value).encode()
    return fetch(app, path, method=method, content=content)


def test_a_model_has_every_field_of_the_contract(
    administration: MemoryAdministration, app: FastAPI
) -> None:
    version = replace(administration.known["scale"].versions[0], delta=17)
    administration.known["scale"] = replace(administration.known["scale"], versions=[version])
    administration.fail("scale", "expected <script>alert('x')</script>")
    model = {
        "name": "scale",
        "state": "READY",
        "pinned": None,
        "policy": {"latest": 1},
        "labels": {"stable": 42},
        "versions": [
            {
                "version": 42,
                "state": "READY",
                "delta": 17,
                "step": None,
                "event_time": None,
                "published": None,
                "applied": None,
                "structure_hash": None,
                "split": None,
                "last_error": None,
                "kept": False,
            }
        ],
        "last_error": {
            "when": 1764417000.0,
            "version": 41,
            "delta": None,
            "reason": "checksum",
            "error": "expected <script>alert('x')</script>",
        },
    }

    assert fetch(app, "/admin/v1/models").json() == {"models": [model]}
    assert fetch(app, "/admin/v1/models/scale").json() == model


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("PUT", "/labels"),
        ("POST", "/load"),
        ("POST", "/unload"),
        ("POST", "/reload"),
        ("POST", "/rollback"),
        ("POST", "/unpin"),
    ],
)
def test_an_unknown_model_is_404(app: FastAPI, method: str, path: str) -> None:
    response = fetch(app, f"/admin/v1/models/nope{path}", method=method)

    assert response.status_code == 404
    assert response.json() == {"error": "model 'nope' is not known; known: scale"}


@pytest.mark.parametrize(
    ("action", "body", "told"),
    [
        ("load", None, ActionRequest()),
        ("load", {"version": 43, "wait_s": 60}, ActionRequest(43, wait_s=60.0)),
        ("load", {"version": None}, ActionRequest()),
        ("unload", {"version": 42}, ActionRequest(42)),
        ("reload", {"force": True, "unpin": True}, ActionRequest(force=True, unpin=True)),
        ("rollback", {"version": 42, "delta": 16}, ActionRequest(42, 16)),
        ("rollback", {"version": 42, "delta": 0}, ActionRequest(42, 0)),
        ("unpin", {}, ActionRequest()),
    ],
)
def test_an_action_is_told_what_was_sent_and_answers_when_it_is_done(
    administration: MemoryAdministration,
    app: FastAPI,
    action: str,
    body: object,
    told: ActionRequest,
) -> None:
    response = send(app, "POST", f"/admin/v1/models/scale/{action}", body)

    assert response.status_code == 200
    assert administration.asked == [(action, "scale", told)]
    operation = response.json()
    assert operation["ended"] >= operation["started"] > 1.7e9
    del operation["ended"], operation["started"]
    assert operation == {
        "id": "op-000001",
        "action": action,
        "model": "scale",
        "state": "DONE",
        "phase": None,
        "progress": 1.0,
        "bytes_done": 4,
        "bytes_total": 10,
        "error": None,
    }


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("load", b"{"),
        ("load", b"[]"),
        ("load", b"\xff"),
        ("load", b'{"version": "43"}'),
        ("load", b'{"version": 0}'),
        ("load", b'{"version": 1.5}'),
        ("load", b'{"version": 1000000000000000000}'),
        ("load", b'{"force": true}'),
        ("load", b'{"wait_s": -1}'),
        ("load", b'{"wait_s": 3600.5}'),
        ("load", b'{"wait_s": null}'),
        ("unload", b'{"delta": 1}'),
        ("reload", b'{"version": 42}'),
        ("reload", b'{"force": 1}'),
        ("rollback", b'{"delta": -1}'),
        ("unpin", b'{"version": 42}'),
    ],
)
def test_bodies_are_strict(
    administration: MemoryAdministration, app: FastAPI, action: str, body: bytes
) -> None:
    response = fetch(app, f"/admin/v1/models/scale/{action}", method="POST", content=body)

    assert response.status_code == 400
    assert response.json()["error"].startswith("request JSON: ")
    assert not administration.asked


def test_a_large_body_is_refused(app: FastAPI) -> None:
    assert send(app, "POST", "/admin/v1/models/scale/load", " " * 70_000).status_code == 413


def test_an_action_that_fails_is_an_answer_that_says_why(
    administration: MemoryAdministration, app: FastAPI
) -> None:
    administration.broken = "version 43: checksum of model.onnx"

    response = send(app, "POST", "/admin/v1/models/scale/load")

    assert response.status_code == 200
    assert response.json()["state"] == "FAILED"
    assert response.json()["error"] == "version 43: checksum of model.onnx"


def test_an_action_that_cannot_begin_is_an_error(
    administration: MemoryAdministration, app: FastAPI
) -> None:
    for refused, status in (
        (Conflict("op-000007 is at work"), 409),
        (NotFound("version 9 of 'scale' is not known"), 404),
        (InvalidInput("no earlier version"), 400),
    ):
        administration.refused = refused
        response = send(app, "POST", "/admin/v1/models/scale/rollback", {"version": 9})
        assert (response.status_code, response.json()) == (status, {"error": refused.message})


def test_an_action_that_goes_on_is_202_and_can_be_followed(
    administration: MemoryAdministration, app: FastAPI
) -> None:
    async def follow() -> list[tuple[int, Any]]:
        administration.gate = asyncio.Event()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            begun = await client.post("/admin/v1/models/scale/load", json={"wait_s": 0})
            place = f"/admin/v1/operations/{begun.json()['id']}"
            running = await client.get(place)
            busy = await client.post("/admin/v1/models/scale/unload", json={"wait_s": 0})
            page = await client.get("/")
            administration.gate.set()
            await asyncio.wait(administration.tasks)
            ended = await client.get(place)
        assert '<progress value="0.400">' in page.text
        assert "building" in page.text
        return [(each.status_code, each.json()) for each in (begun, running, busy, ended)]

    begun, running, busy, ended = asyncio.run(follow())

    assert (begun[0], begun[1]["state"], begun[1]["phase"]) == (202, "RUNNING", "building")
    assert running == (200, begun[1])
    assert busy[0] == 409
    assert (ended[0], ended[1]["state"]) == (200, "DONE")


def test_an_unknown_operation_is_404(app: FastAPI) -> None:
    assert fetch(app, "/admin/v1/operations/op-000009").status_code == 404


def test_labels_are_merged_and_null_removes_one(app: FastAPI) -> None:
    place = "/admin/v1/models/scale/labels"

    assert send(app, "PUT", place, {"canary": 43}).json()["labels"] == {"stable": 42, "canary": 43}
    assert send(app, "PUT", place, {"stable": None}).json()["labels"] == {"canary": 43}


@pytest.mark.parametrize(
    "labels", [{"Canary": 1}, {"42": 42}, {"canary": "43"}, {"canary": 0}, {"canary": 1.5}, [1]]
)
def test_what_is_no_label_is_refused(
    administration: MemoryAdministration, app: FastAPI, labels: object
) -> None:
    assert send(app, "PUT", "/admin/v1/models/scale/labels", labels).status_code == 400
    assert administration.known["scale"].labels == {"stable": 42}


def test_workers_and_settings_are_shown_as_given(app: FastAPI) -> None:
    assert fetch(app, "/admin/v1/workers").json() == {
        "workers": [
            {
                "index": 0,
                "pid": 4244,
                "state": "serving",
                "started": 1764417600.0,
                "restarts": 1,
                "snapshots": {"scale": "42+17"},
            }
        ]
    }
    assert fetch(app, "/admin/v1/config").json() == CONFIG


def test_what_is_logged_can_be_changed(app: FastAPI) -> None:
    place = "/admin/v1/log"

    assert send(app, "PUT", place, {}).json() == {"level": "info", "access": False}
    assert send(app, "PUT", place, {"level": "debug"}).json() == {"level": "debug", "access": False}
    assert send(app, "PUT", place, {"access": True}).json() == {"level": "debug", "access": True}
    for wrong in ({"level": "loud"}, {"access": 1}, {"file": "/tmp/log"}):
        assert send(app, "PUT", place, wrong).status_code == 400


def test_a_trace_is_chromes_json(app: FastAPI) -> None:
    response = send(app, "POST", "/admin/v1/trace?seconds=0.1")

    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"traceEvents": []}
    for seconds in ("0", "61", "nan", "x"):
        assert send(app, "POST", f"/admin/v1/trace?seconds={seconds}").status_code == 400


def test_what_is_to_come_says_so(app: FastAPI) -> None:
    response = fetch(app, "/admin/v1/models/scale/traffic", method="PUT")

    assert response.status_code == 501
    assert "yet" in response.json()["error"]


def test_snapshots_of_a_model_are_compared(
    administration: MemoryAdministration, app: FastAPI
) -> None:
    found = DifferenceView(
        [TableDifferenceView("emb", 1, 2, 3, 0.5)], [WeightDifferenceView("w", 4, None)]
    )
    administration.differences["scale", "42", "42+17"] = found

    answer = fetch(app, "/admin/v1/models/scale/diff?a=42&b=42%2B17")

    assert answer.json() == dataclasses.asdict(found)
    assert fetch(app, "/admin/v1/models/scale/diff?a=42&b=43").status_code == 404
    assert fetch(app, "/admin/v1/models/scale/diff?a=42").status_code == 400
    assert fetch(app, "/admin/v1/models/none/diff?a=42&b=43").status_code == 404


def test_tables_are_those_of_the_model(administration: MemoryAdministration, app: FastAPI) -> None:
    table = TableView("user/emb", 3, 2, "f32", "hashed", 96, 0.5, 1.25, 7, 1)
    administration.kept_tables["scale"] = [table]

    answer = fetch(app, "/admin/v1/models/scale/tables")

    assert answer.json() == {"tables": [dataclasses.asdict(table)]}
    assert fetch(app, "/admin/v1/models/nobody/tables").status_code == 404


def test_rows_come_in_the_order_of_their_keys(
    administration: MemoryAdministration, app: FastAPI
) -> None:
    administration.kept_rows["scale", "user/emb"] = {-5: [1.5, 2.0]}
    place = "/admin/v1/models/scale/tables/user%2Femb/rows"

    answer = fetch(app, f"{place}?key={2**64 - 1}&key=-5")

    rows = answer.json()["rows"]
    assert [(row["key"], row["found"], row["values"]) for row in rows] == [
        (2**64 - 1, False, []),
        (-5, True, [1.5, 2.0]),
    ]
    assert {"norm", "frequency", "step", "changed_by_delta"} < rows[0].keys()
    for bad in ("", "?key=x", "?key=1.5", "?" + "&".join(["key=1"] * 1001)):
        assert fetch(app, place + bad).status_code == 400
    assert fetch(app, "/admin/v1/models/scale/tables/other/rows?key=1").status_code == 404


def test_every_change_leaves_a_line(
    administration: MemoryAdministration, app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "anabranch_server.audit")

    fetch(app, "/admin/v1/models")
    send(app, "PUT", "/admin/v1/log", {})
    send(app, "POST", "/admin/v1/models/scale/load")
    send(app, "POST", "/admin/v1/models/nope/unload")
    send(app, "PUT", "/admin/v1/models/scale/labels", {"canary": 43})
    send(app, "PUT", "/admin/v1/log", {"level": "debug"})
    administration.broken = "disk full"
    send(app, "POST", "/admin/v1/models/scale/reload", {"force": True})
    send(app, "POST", "/v2/repository/models/scale/unload")
    send(app, "POST", "/admin/v1/trace?seconds=0.1")

    lines = [vars(record) for record in caplog.records if vars(record).get("event") == "admin"]
    fields = ("action", "model", "result", "operation", "subject")
    assert [tuple(line[name] for name in fields) for line in lines] == [
        ("load", "scale", "done", "op-000001", None),
        ("unload", "nope", "refused", None, None),
        ("labels", "scale", "done", None, None),
        ("log", None, "done", None, None),
        ("reload", "scale", "failed", "op-000002", None),
        ("unload", "scale", "failed", "op-000003", None),
        ("trace", None, "done", None, None),
    ]


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_pages_of_other_sites_change_nothing(
    administration: MemoryAdministration, app: FastAPI, method: str
) -> None:
    for origin in ("http://evil.example", "null", "http://test:81", "http://["):
        response = fetch(
            app, "/admin/v1/models/scale/load", method=method, headers={"Origin": origin}
        )
        assert response.status_code == 403
        assert set(response.json()) == {"error"}
    assert not administration.asked

    own = {"Origin": "http://test"}
    assert fetch(app, "/admin/v1/models/scale/load", method="POST", headers=own).is_success


def test_nullable_fields_are_described_in_the_words_of_openapi_3_0(app: FastAPI) -> None:
    document = fetch(app, "/openapi.json").json()
    properties = document["components"]["schemas"]["ModelView"]["properties"]
    load = document["paths"]["/admin/v1/models/{model}/load"]["post"]
    body = load["requestBody"]["content"]["application/json"]["schema"]

    assert properties["pinned"]["type"] == "string"
    assert properties["pinned"]["nullable"] is True
    assert properties["last_error"]["nullable"] is True
    assert properties["last_error"]["allOf"] == [{"$ref": "#/components/schemas/FailureView"}]
    assert body["properties"]["version"]["nullable"] is True
    assert body["properties"]["wait_s"]["description"].startswith("how long to wait")
    assert body["additionalProperties"] is False
    assert {"200", "202", "400", "404", "409", "default"} <= set(load["responses"])
    assert fetch(app, "/docs").status_code == 200
