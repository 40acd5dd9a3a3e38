from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from fastapi import FastAPI

from anabranch_runtime.catalog import ServingState
from anabranch_server.app import AdminSources, create_admin_app
from anabranch_server.describe import FailureView, WorkerView
from anabranch_server.doors import DoorContext
from anabranch_testing.asgi import fetch
from anabranch_testing.catalogs import publish
from anabranch_testing.doors import door_context
from anabranch_testing.graphs import scale_model

WORKER = WorkerView(0, 4244, "serving", 1764417600.0, 1, {"scale": "42+17"})
FAILURE = FailureView(1764417000.0, 41, None, "checksum", "expected <script>alert('x')</script>")
CONFIG = {"http_port": 8000, "auth": {"token_file": "***"}}


@pytest.fixture
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorContext]:
    with door_context({"scale": scale_model(tmp_path_factory.mktemp("models"))}) as context:
        yield context


@pytest.fixture
def app(context: DoorContext) -> FastAPI:
    sources = AdminSources(CONFIG, lambda: [WORKER], lambda: {"scale": FAILURE})
    return create_admin_app(context, sources)


def test_a_model_has_every_field_of_the_contract(app: FastAPI) -> None:
    model = {
        "name": "scale",
        "state": "READY",
        "pinned": None,
        "policy": None,
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


def test_an_unknown_model_is_404(app: FastAPI) -> None:
    response = fetch(app, "/admin/v1/models/nope")

    assert response.status_code == 404
    assert response.json() == {"error": "model 'nope' is not known; known: scale"}


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


@pytest.mark.parametrize("body", [None, b"", b"{}", b'{"ready": false}', b'{"other": 1}'])
def test_the_index_lists_what_is_and_what_is_not_loaded(
    context: DoorContext, app: FastAPI, body: bytes | None
) -> None:
    publish(context.catalog, "empty", ServingState({}))

    response = fetch(app, "/v2/repository/index", method="POST", content=body)

    assert response.json() == [
        {"name": "empty", "version": "", "state": "UNAVAILABLE", "reason": "no version is loaded"},
        {"name": "scale", "version": "42", "state": "READY", "reason": ""},
    ]


def test_the_index_can_leave_out_what_is_not_ready(context: DoorContext, app: FastAPI) -> None:
    publish(context.catalog, "empty", ServingState({}))

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


@pytest.mark.parametrize("action", ["load", "unload"])
def test_loading_by_call_is_not_there_yet(app: FastAPI, action: str) -> None:
    response = fetch(app, f"/v2/repository/models/scale/{action}", method="POST")

    assert response.status_code == 501
    assert "not supported" in response.json()["error"]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_status_page_escapes_everything(context: DoorContext, app: FastAPI) -> None:
    publish(context.catalog, "<img src=x>", ServingState({}, required=False))

    page = fetch(app, "/")
    tags = Tags()
    tags.feed(page.text)

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src" not in page.headers["content-security-policy"]
    assert {"script", "img"}.isdisjoint(tags.seen)
    assert "alert('x')" in tags.text
    assert "<img src=x>" in tags.text
    assert "Ready" in tags.text


def test_the_status_page_says_why_the_server_is_not_ready(
    context: DoorContext, app: FastAPI
) -> None:
    publish(context.catalog, "empty", ServingState({}))

    text = fetch(app, "/").text

    assert "Not ready: required models that cannot answer: empty (no version is loaded)" in text
    assert fetch(app, "/status.css").status_code == 200


def test_an_empty_server_has_a_page_too() -> None:
    with door_context({}) as context:
        app = create_admin_app(context, AdminSources({}, list))
        text = fetch(app, "/").text

    assert "The repository has no model." in text
    assert "No worker is known." in text


def test_nullable_fields_are_described_in_the_words_of_openapi_3_0(app: FastAPI) -> None:
    document = fetch(app, "/openapi.json").json()
    properties = document["components"]["schemas"]["ModelView"]["properties"]

    assert properties["pinned"]["type"] == "string"
    assert properties["pinned"]["nullable"] is True
    assert properties["last_error"]["nullable"] is True
    assert properties["last_error"]["allOf"] == [{"$ref": "#/components/schemas/FailureView"}]
    assert fetch(app, "/docs").status_code == 200


def test_what_is_wrong_with_a_model_itself_names_no_version(context: DoorContext) -> None:
    failures = {"scale": replace(FAILURE, version=None)}
    app = create_admin_app(context, AdminSources({}, list, lambda: failures))

    assert fetch(app, "/admin/v1/models/scale").json()["last_error"]["version"] is None
    assert "UTC: checksum: expected" in fetch(app, "/").text
