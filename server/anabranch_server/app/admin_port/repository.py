"""The repository, logging and trace extensions of the Open Inference Protocol, as Triton has them.

Triton's clients take 200 and nothing else for a success.
"""

from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from anabranch_server.administration import Administration
from anabranch_server.app.json_bodies import describe_body, read_body
from anabranch_server.app.openapi import JsonObject, error_responses
from anabranch_server.app.probes import add_probes
from anabranch_server.audit import Changes
from anabranch_server.describe import IndexEntry
from anabranch_server.repository_calls import LogSetting, RepositoryCalls
from anabranch_wire.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    TooLarge,
    Unavailable,
    Unsupported,
)

__all__ = ["add_repository"]

_EMPTY: Final[dict[int | str, JsonObject]] = {200: {"description": "Done; the body is empty."}}
_REPOSITORIES: Final = ("/v2/repository", "/v2/repository/{repository}")
"""Triton's clients may name a repository; then they are told that it has no name."""

_TRACES: Final = (
    "/v2/trace/setting",
    "/v2/models/{model}/trace/setting",
    "/v2/models/{model}/versions/{version}/trace/setting",
)


class IndexBody(msgspec.Struct, frozen=True):
    """Which versions to list.

    Attributes:
        ready: only what can answer now.
    """

    ready: bool = False


class ParametersBody(msgspec.Struct, frozen=True):
    """Parameters of a call.

    Attributes:
        parameters: `config` and `file:...` are refused, `unload_dependents` has no effect.
    """

    parameters: dict[str, Any] = {}


def add_repository(app: FastAPI, administration: Administration, changes: Changes) -> None:
    """Add the routes."""
    calls = RepositoryCalls(administration, changes)
    add_probes(app, administration, prefix="/v2/health")
    _add_repository(app, calls)
    _add_logging(app, calls)
    _add_tracing(app, calls)


def _add_repository(app: FastAPI, calls: RepositoryCalls) -> None:
    async def index(request: Request) -> list[IndexEntry]:
        wanted = await read_body(request, IndexBody)
        return await calls.index(_repository(request), only_ready=wanted.ready)

    async def load(request: Request, model: str) -> Response:
        told = await read_body(request, ParametersBody)
        await calls.load(_repository(request), model, told.parameters)
        return Response()

    async def unload(request: Request, model: str) -> Response:
        await read_body(request, ParametersBody)
        await calls.unload(_repository(request), model)
        return Response()

    for root in _REPOSITORIES:
        described = root == _REPOSITORIES[0]
        app.add_api_route(
            f"{root}/index",
            index,
            methods=["POST"],
            tags=["Repository"],
            summary="Every version and its state",
            operation_id="repository_index",
            openapi_extra=describe_body(IndexBody),
            responses=error_responses(InvalidInput, TooLarge),
            include_in_schema=described,
        )
        for action, endpoint, summary in (
            ("load", load, "Load what the policy names"),
            ("unload", unload, "Unload every version"),
        ):
            app.add_api_route(
                f"{root}/models/{{model}}/{action}",
                endpoint,
                methods=["POST"],
                tags=["Repository"],
                summary=summary,
                description="Answers when it is done, which may take long.",
                operation_id=f"repository_{action}",
                response_class=Response,
                openapi_extra=describe_body(ParametersBody),
                responses={
                    **error_responses(
                        InvalidInput, NotFound, Conflict, TooLarge, Unavailable, Unsupported
                    ),
                    **_EMPTY,
                },
                include_in_schema=described,
            )


def _repository(request: Request) -> str:
    return str(request.path_params.get("repository", ""))


def _add_logging(app: FastAPI, calls: RepositoryCalls) -> None:
    @app.get(
        "/v2/logging",
        tags=["Repository"],
        summary="What is logged, in Triton's words",
        operation_id="log_settings",
    )
    async def shown() -> dict[str, bool | int | str]:
        return await calls.log_settings({})

    @app.post(
        "/v2/logging",
        tags=["Repository"],
        summary="Change what is logged, in Triton's words",
        operation_id="update_log_settings",
        openapi_extra=describe_body(dict[str, LogSetting | None], {"log_verbose_level": 1}),
        responses=error_responses(InvalidInput, TooLarge, Unsupported),
    )
    async def changed(request: Request) -> dict[str, bool | int | str]:
        return await calls.log_settings(await read_body(request, dict[str, LogSetting | None]))


def _add_tracing(app: FastAPI, calls: RepositoryCalls) -> None:
    async def shown(request: Request) -> Response:
        return JSONResponse(await calls.trace_settings(_model(request), {}))

    async def changed(request: Request) -> Response:
        wanted = await read_body(request, dict[str, str | list[str] | None])
        listed = {
            name: [value] if isinstance(value, str) else value or []
            for name, value in wanted.items()
        }
        return JSONResponse(await calls.trace_settings(_model(request), listed))

    for place in _TRACES:
        for method, endpoint in (("GET", shown), ("POST", changed)):
            app.add_api_route(place, endpoint, methods=[method], include_in_schema=False)


def _model(request: Request) -> str:
    return str(request.path_params.get("model", ""))
