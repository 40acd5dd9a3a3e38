"""The admin port: models, workers and settings as JSON, the repository index, the status page."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from anabranch_server.app.documentation import add_documentation
from anabranch_server.app.edge import add_edge
from anabranch_server.app.openapi import JsonObject, describe_app, error_responses
from anabranch_server.app.status_page import POLICY, STYLE, Status, render_status
from anabranch_server.describe import (
    FailureView,
    IndexEntry,
    ModelView,
    WorkerView,
    model_view,
    model_views,
    repository_index,
)
from anabranch_server.doors import DoorContext
from anabranch_wire.errors import (
    InvalidInput,
    NotFound,
    TooLarge,
    Unavailable,
    Unsupported,
)

__all__ = ["AdminSources", "create_admin_app"]

_DESCRIPTION: Final = """Looks after an anabranch server.

Times are seconds since 1970. Every answer names its request in `X-Request-Id`, every failure has
the body `{"error": text}`.
"""

_MAX_BODY_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class AdminSources:
    """What only the process around the doors knows.

    Attributes:
        config: effective settings as JSON has them, secrets already masked.
        workers: the worker processes now.
        failures: model name -> what went wrong with it last.
    """

    config: Mapping[str, object]
    workers: Callable[[], Sequence[WorkerView]]
    failures: Callable[[], Mapping[str, FailureView]] = dict


@dataclass(frozen=True, slots=True)
class Models:
    """Every model.

    Attributes:
        models: by name.
    """

    models: list[ModelView]


@dataclass(frozen=True, slots=True)
class Workers:
    """Every worker process.

    Attributes:
        workers: by index.
    """

    workers: list[WorkerView]


def create_admin_app(context: DoorContext, sources: AdminSources) -> FastAPI:
    """Return the app of the admin port.

    Args:
        context: what is served.
        sources: what is around it.
    """
    app = FastAPI(
        title="anabranch admin",
        version=context.server_version,
        description=_DESCRIPTION,
        license_info={"name": "Apache-2.0"},
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_edge(app, "the API is described at /docs")
    _add_views(app, context, sources)
    _add_repository(app, context)
    _add_status_page(app, context, sources)
    add_documentation(app, lambda: describe_app(app, paths={}, schemas={}))
    return app


def _add_views(app: FastAPI, context: DoorContext, sources: AdminSources) -> None:
    catalog = context.catalog

    @app.get("/admin/v1/models", tags=["Models"], summary="Every model", operation_id="models")
    async def models() -> Models:
        return Models(model_views(catalog, sources.failures()))

    @app.get(
        "/admin/v1/models/{model}",
        tags=["Models"],
        summary="One model",
        operation_id="model",
        responses=error_responses(NotFound),
    )
    async def one_model(model: str) -> ModelView:
        return model_view(catalog, sources.failures(), model)

    @app.get("/admin/v1/workers", tags=["Server"], summary="Every worker", operation_id="workers")
    async def workers() -> Workers:
        return Workers(list(sources.workers()))

    @app.get(
        "/admin/v1/config",
        tags=["Server"],
        summary="Effective settings, secrets as ***",
        operation_id="config",
        response_class=JSONResponse,
        response_model=dict[str, object],
    )
    async def config() -> Response:
        return JSONResponse(dict(sources.config))


class _IndexRequest(msgspec.Struct):
    ready: bool = False


_INDEX_BODY: Final[JsonObject] = {
    "requestBody": {
        "required": False,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "ready": {
                            "type": "boolean",
                            "default": False,
                            "description": "Only what can answer now.",
                        }
                    },
                }
            }
        },
    }
}


def _add_repository(app: FastAPI, context: DoorContext) -> None:
    @app.post(
        "/v2/repository/index",
        tags=["Repository"],
        summary="Every version and its state",
        operation_id="repository_index",
        openapi_extra=_INDEX_BODY,
        responses=error_responses(InvalidInput, TooLarge),
    )
    async def index(request: Request) -> list[IndexEntry]:
        body = await _read_body(request)
        try:
            wanted = msgspec.json.decode(body, type=_IndexRequest) if body else _IndexRequest()
        except msgspec.DecodeError as error:
            raise InvalidInput(f"request JSON: {error}") from None
        return repository_index(context.catalog, only_ready=wanted.ready)

    for action in ("load", "unload"):
        app.add_api_route(
            f"/v2/repository/models/{{model}}/{action}",
            _refusal(f"{action}ing models by call is not supported: change the repository"),
            methods=["POST"],
            include_in_schema=False,
        )


def _refusal(text: str) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        raise Unsupported(text)

    return refuse


async def _read_body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise TooLarge(f"body: at most {_MAX_BODY_BYTES} bytes are allowed")
    return body


def _add_status_page(app: FastAPI, context: DoorContext, sources: AdminSources) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        fault = ""
        try:
            context.lifecycle.check_ready()
        except Unavailable as error:
            fault = error.message
        status = Status(
            context.server_version,
            fault,
            model_views(context.catalog, sources.failures()),
            sources.workers(),
        )
        return HTMLResponse(render_status(status), headers={"Content-Security-Policy": POLICY})

    @app.get("/status.css", include_in_schema=False)
    async def style() -> Response:
        return Response(STYLE, media_type="text/css")
