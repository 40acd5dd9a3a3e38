"""The cold routes of the data port: health, metadata, configuration, documentation.

Infer and rank routes are answered by the hot path before a request reaches this app.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from fastapi import FastAPI
from starlette.responses import JSONResponse, Response

from anabranch_server.app.documentation import add_documentation
from anabranch_server.app.edge import add_edge
from anabranch_server.app.infer_routes import INFER_SCHEMAS, infer_paths
from anabranch_server.app.openapi import JsonObject, describe_app, error_responses
from anabranch_server.app.probes import EMPTY, add_probes
from anabranch_server.app.rank_routes import RANK_SCHEMAS, rank_paths
from anabranch_server.describe import (
    ModelConfiguration,
    ModelMetadata,
    ServerMetadata,
    configuration_of,
    model_metadata,
    server_metadata,
)
from anabranch_server.doors import DoorContext
from anabranch_wire.errors import (
    AnabranchError,
    NotFound,
    PermissionDenied,
    Unavailable,
    Unsupported,
)

__all__ = ["create_app"]

_DESCRIPTION: Final = """Scores recommendation models.

The Open Inference Protocol, version 2, with the binary tensor extension, and ranking: a user and
candidates in, ids in their order out. The same over gRPC on its own port. Every answer names its
request in `X-Request-Id`, every failure has the body `{"error": text}`.
"""

_TAGS: Final = [
    {"name": "Scoring", "description": "Tensors in, scores out."},
    {"name": "Ranking", "description": "Raw features in, ranked candidates out."},
    {"name": "Models", "description": "What is served, and how."},
    {"name": "Server", "description": "Health and identity."},
]


@dataclass(frozen=True, slots=True)
class ModelList:
    """Names of the models.

    Attributes:
        models: every known model, loaded or not, by name.
    """

    models: list[str]


def create_app(context: DoorContext) -> FastAPI:
    """Return the app of the data port.

    Args:
        context: what routes answer from.
    """
    app = FastAPI(
        title="anabranch",
        version=context.server_version,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        license_info={"name": "Apache-2.0"},
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_edge(app, "the API is described at /docs")
    add_probes(app, context.lifecycle, prefix="/v2/health")
    _add_server(app, context)
    _add_refusals(app)  # before the models: one may be called "stats"
    _add_models(app, context)
    add_documentation(
        app,
        lambda: describe_app(
            app,
            paths=infer_paths(context.catalog) | rank_paths(context.catalog),
            schemas={**INFER_SCHEMAS, **RANK_SCHEMAS},
        ),
    )
    return app


def _add_server(app: FastAPI, context: DoorContext) -> None:
    @app.get("/v2", tags=["Server"], summary="Name, version, extensions", operation_id="server")
    async def server() -> ServerMetadata:
        return server_metadata(context.server_version)


def _add_models(app: FastAPI, context: DoorContext) -> None:
    catalog = context.catalog
    limits = context.limits

    @app.get("/v2/models", tags=["Models"], summary="Names of the models", operation_id="models")
    async def models() -> ModelList:
        return ModelList(sorted(catalog.states))

    def ready(model: str, version: str) -> Response:
        catalog.resolve(model, version)
        return Response()

    def configuration(model: str, version: str) -> ModelConfiguration:
        return configuration_of(catalog.resolve(model, version), limits.max_rows)

    _add_pair(
        app,
        _ModelRoute("", "model", "Inputs, outputs, loaded versions", ModelMetadata),
        lambda model, version: model_metadata(catalog, model, version),
    )
    _add_pair(
        app, _ModelRoute("/ready", "model_ready", "Whether it can answer", None, EMPTY), ready
    )
    _add_pair(
        app,
        _ModelRoute("/config", "model_config", "How it is served", ModelConfiguration),
        configuration,
    )


@dataclass(frozen=True, slots=True)
class _ModelRoute:
    """A route below a model, as it is described; `answers` is None for answers without a body."""

    suffix: str
    operation: str
    summary: str
    answers: type | None
    responses: dict[int | str, JsonObject] = field(default_factory=dict)


def _add_pair(app: FastAPI, route: _ModelRoute, answer: Callable[[str, str], object]) -> None:
    """Add `route` for the version that serves now, and for a chosen version or label."""

    async def newest(model: str) -> object:
        return answer(model, "")

    async def chosen(model: str, version: str) -> object:
        return answer(model, version)

    for place, operation, endpoint in (
        ("/v2/models/{model}", route.operation, newest),
        ("/v2/models/{model}/versions/{version}", f"{route.operation}_version", chosen),
    ):
        app.add_api_route(
            f"{place}{route.suffix}",
            endpoint,
            tags=["Models"],
            summary=route.summary,
            operation_id=operation,
            response_model=route.answers,
            response_class=JSONResponse if route.answers else Response,
            responses={**error_responses(NotFound, Unavailable), **route.responses},
        )


def _add_refusals(app: FastAPI) -> None:
    """Answer what clients of the protocol may try and would not understand a 404 to."""
    missing = _refusal(Unsupported, "statistics are not supported here: read /metrics")
    for place in ("stats", "{model}/stats", "{model}/versions/{version}/stats"):
        app.add_api_route(f"/v2/models/{place}", missing, include_in_schema=False)
    elsewhere = _refusal(PermissionDenied, "repository calls are answered on the admin port only")
    for place in ("index", "models/{model}/load", "models/{model}/unload"):
        app.add_api_route(
            f"/v2/repository/{place}", elsewhere, methods=["POST"], include_in_schema=False
        )


def _refusal(kind: type[AnabranchError], text: str) -> Callable[[], Awaitable[None]]:
    async def refuse() -> None:
        raise kind(text)

    return refuse
