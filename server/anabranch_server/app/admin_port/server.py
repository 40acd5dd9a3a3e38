"""The server itself: operations, workers, settings, logs, traces."""

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from fastapi import FastAPI, Query, Request
from starlette.responses import JSONResponse, Response

from anabranch_server.administration import Administration, LogView, OperationView
from anabranch_server.app.json_bodies import describe_body, read_body
from anabranch_server.app.openapi import JsonObject, error_responses
from anabranch_server.audit import Changes
from anabranch_server.config import LogLevel
from anabranch_server.describe import WorkerView
from anabranch_wire.errors import Conflict, InvalidInput, NotFound, TooLarge, Unsupported

__all__ = ["add_server"]

_SHORTEST_TRACE_S: Final = 0.01
_LONGEST_TRACE_S: Final = 60


@dataclass(frozen=True, slots=True)
class Workers:
    """Every worker process.

    Attributes:
        workers: by index.
    """

    workers: list[WorkerView]


class LogBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to log from now on, in every process.

    Attributes:
        level: least level that is written; without it, as before.
        access: whether every request gets a line; without it, as before.
    """

    level: LogLevel | None = None
    access: bool | None = None


_TRACE: Final[dict[int | str, JsonObject]] = {
    200: {
        "description": "Chrome's trace format, for Perfetto or chrome://tracing.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


def add_server(app: FastAPI, administration: Administration, changes: Changes) -> None:
    """Add the routes."""

    @app.get(
        "/admin/v1/operations/{identity}",
        tags=["Actions"],
        summary="How far an action is",
        operation_id="operation",
        responses=error_responses(NotFound),
    )
    async def operation(identity: str) -> OperationView:
        return administration.operation(identity)

    @app.get("/admin/v1/workers", tags=["Server"], summary="Every worker", operation_id="workers")
    async def workers() -> Workers:
        return Workers(list(administration.workers()))

    @app.get(
        "/admin/v1/config",
        tags=["Server"],
        summary="Effective settings, secrets as ***",
        operation_id="config",
        response_class=JSONResponse,
        response_model=dict[str, object],
    )
    async def config() -> Response:
        return JSONResponse(dict(administration.config()))

    @app.put(
        "/admin/v1/log",
        tags=["Server"],
        summary="Change what is logged",
        description="In every process, until the next start. `{}` changes nothing and answers "
        "what is logged now.",
        operation_id="set_log",
        openapi_extra=describe_body(LogBody),
        responses=error_responses(InvalidInput, TooLarge),
    )
    async def log(request: Request) -> LogView:
        wanted = await read_body(request, LogBody)
        return changes.log(wanted.level, wanted.access)

    @app.post(
        "/admin/v1/trace",
        tags=["Server"],
        summary="Record what the workers do",
        operation_id="trace",
        response_class=Response,
        responses={**_TRACE, **error_responses(InvalidInput, Conflict, Unsupported)},
    )
    async def trace(
        seconds: Annotated[
            float,
            Query(ge=_SHORTEST_TRACE_S, le=_LONGEST_TRACE_S, description="How long to record."),
        ] = 5.0,
    ) -> Response:
        recorded = await changes.trace(seconds)
        return Response(recorded, media_type="application/json")
