"""The metrics port: one exposition, and the probes where a scraper can reach them."""

from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import FastAPI
from starlette.responses import Response

from anabranch_server.app.edge import add_edge
from anabranch_server.app.probes import add_probes
from anabranch_server.lifecycle import Readiness

__all__ = ["create_metrics_app"]

_PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


def create_metrics_app(readiness: Readiness, exposition: Callable[[], Awaitable[bytes]]) -> FastAPI:
    """Return the app of the metrics port.

    Args:
        readiness: what the probe asks.
        exposition: makes the Prometheus text; called on the event loop, once per scrape.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    add_edge(app, "metrics are at /metrics, probes at /health/live and /health/ready")
    add_probes(app, readiness, prefix="/health")

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await exposition(), media_type=_PROMETHEUS_TEXT)

    return app
