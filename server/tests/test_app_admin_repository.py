import json

import pytest
from fastapi import FastAPI

from anabranch_server.app import create_admin_app
from anabranch_testing.administrations import MemoryAdministration, model_view
from anabranch_testing.asgi import fetch


@pytest.fixture
def administration() -> MemoryAdministration:
    return MemoryAdministration({"empty": model_view("empty"), "scale": model_view("scale", 42)})


@pytest.fixture
def app(administration: MemoryAdministration) -> FastAPI:
    return create_admin_app(administration, "0.1.0")


@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"ready": false}', b'{"other": 1}'])
def test_the_index_lists_what_is_and_what_is_not_loaded(app: FastAPI, body: bytes | None) -> None:
    response = fetch(app, "/v2/repository/index", method="POST", content=body)

    assert response.json() == [
        {"name": "empty", "version": "", "state": "UNAVAILABLE", "reason": "no version is loaded"},
        {"name": "scale", "version": "42", "state": "READY", "reason": ""},
    ]


def test_the_index_can_leave_out_what_is_not_ready(app: FastAPI) -> None:
    response = fetch(app, "/v2/repository/index", method="POST", content=b'{"ready": true}')

    assert [entry["name"] for entry in response.json()] == ["scale"]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b'{"ready": 1}', 400), (b"\xff", 400), (b" " * 70_000, 413)],
)
def test_a_bad_index_request_is_the_callers_fault(app: FastAPI, body: bytes, status: int) -> None:
    response = fetch(app, "/v2/repository/index", method="POST", content=body)

    assert response.status_code == status
    assert set(response.json()) == {"error"}


@pytest.mark.parametrize("place", ["index", "models/scale/load", "models/scale/unload"])
def test_the_one_repository_has_no_name(
    administration: MemoryAdministration, app: FastAPI, place: str
) -> None:
    response = fetch(app, f"/v2/repository/other/{place}", method="POST")

    assert response.status_code == 501
    assert "'other'" in response.json()["error"]
    assert not administration.asked


def test_a_change_answers_nothing_when_it_is_done(
    administration: MemoryAdministration, app: FastAPI
) -> None:
    body = json.dumps({"parameters": {"unload_dependents": True}}).encode()

    loaded = fetch(app, "/v2/repository/models/empty/load", method="POST")
    gone = fetch(app, "/v2/repository/models/scale/unload", method="POST", content=body)

    assert (loaded.status_code, loaded.content) == (200, b"")
    assert (gone.status_code, gone.content) == (200, b"")
    assert [view.state for view in administration.models()] == ["READY", "UNAVAILABLE"]


@pytest.mark.parametrize("place", ["trace/setting", "versions/42/trace/setting"])
def test_trace_settings_of_a_model_are_the_servers(app: FastAPI, place: str) -> None:
    assert fetch(app, f"/v2/models/scale/{place}").json() == {"trace_level": ["OFF"]}
    assert fetch(app, f"/v2/models/nope/{place}").status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"log_verbose_level": "1"}, 400),
        ({"log_verbose_level": True}, 400),
        ({"log_info": 1}, 400),
        ({"log_info": []}, 400),
        ([], 400),
        ({"log_verbose_level": 2}, 200),
        ({}, 200),
    ],
)
def test_log_settings_have_types(app: FastAPI, body: object, status: int) -> None:
    content = json.dumps(body).encode()
    assert fetch(app, "/v2/logging", method="POST", content=content).status_code == status


def test_probes_are_here_too(administration: MemoryAdministration, app: FastAPI) -> None:
    administration.unready = "the server is starting"

    ready = fetch(app, "/v2/health/ready")

    assert (ready.status_code, ready.json()) == (503, {"error": "the server is starting"})
    assert fetch(app, "/v2/health/live").status_code == 200
