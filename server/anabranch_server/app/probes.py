"""Live and ready, for whoever looks after the process."""

from fastapi import FastAPI
from starlette.responses import Response

from anabranch_server.app.openapi import JsonObject, error_responses
from anabranch_server.lifecycle import Readiness
from anabranch_wire.errors import Unavailable

__all__ = ["EMPTY", "add_probes"]

EMPTY: dict[int | str, JsonObject] = {200: {"description": "Yes; the body is empty."}}
"""`responses` of a route whose status says it all."""


def add_probes(app: FastAPI, readiness: Readiness, *, prefix: str) -> None:
    """Add `prefix`/live and `prefix`/ready: 200 with an empty body, else 503 with the reason."""

    @app.get(
        f"{prefix}/live",
        tags=["Server"],
        summary="Whether the process works",
        operation_id="live",
        response_class=Response,
        responses=EMPTY,
    )
    async def live() -> Response:
        return Response()

    @app.get(
        f"{prefix}/ready",
        tags=["Server"],
        summary="Whether every required model can answer",
        operation_id="ready",
        response_class=Response,
        responses={**EMPTY, **error_responses(Unavailable)},
    )
    async def ready() -> Response:
        readiness.check_ready()
        return Response()
