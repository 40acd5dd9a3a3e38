from anabranch_server.app import create_metrics_app
from anabranch_server.lifecycle import Phase
from anabranch_testing.asgi import fetch
from anabranch_testing.doors import door_context


async def _nothing() -> bytes:
    return b""


def test_the_exposition_is_served_as_prometheus_text() -> None:
    async def text() -> bytes:
        return b"anabranch_build_info 1\n"

    with door_context({}) as context:
        app = create_metrics_app(context.lifecycle, text)

        response = fetch(app, "/metrics")

    assert response.content == b"anabranch_build_info 1\n"
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_probes_follow_the_lifecycle() -> None:
    with door_context({}) as context:
        app = create_metrics_app(context.lifecycle, _nothing)
        empty = fetch(app, "/health/ready")
        context.lifecycle.advance(Phase.DRAINING)
        draining = fetch(app, "/health/ready")

        assert fetch(app, "/health/live").content == b""
    assert (empty.status_code, draining.status_code) == (503, 503)
    assert empty.json() == {"error": "the repository has no model"}
    assert draining.json() == {"error": "the server is draining"}


def test_a_failing_exposition_is_an_internal_error() -> None:
    async def fail() -> bytes:
        raise OSError("page lost")

    with door_context({}) as context:
        response = fetch(create_metrics_app(context.lifecycle, fail), "/metrics")

    assert response.status_code == 500
    assert "page lost" not in response.text


def test_other_routes_are_404() -> None:
    with door_context({}) as context:
        response = fetch(create_metrics_app(context.lifecycle, _nothing), "/docs")

    assert response.status_code == 404
    assert set(response.json()) == {"error"}


def test_other_routes_are_told_what_there_is() -> None:
    with door_context({}) as context:
        response = fetch(create_metrics_app(context.lifecycle, _nothing), "/")

    wanted = "metrics are at /metrics, probes at /health/live and /health/ready"
    assert (response.status_code, response.json()) == (
        404,
        {"error": f"no such route: GET /; {wanted}"},
    )
