"""The edge of the cold HTTP routes: request ids, and every failure as `{"error": text}`."""

import logging
import math
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch_server.request_ids import RequestIds
from anabranch_server.trace_context import read_trace
from anabranch_wire.errors import (
    AnabranchError,
    Internal,
    InvalidInput,
    MethodNotAllowed,
    NotFound,
    Overloaded,
)

__all__ = ["add_edge", "error_response"]

_LOGGER = logging.getLogger(__name__)

_NOT_FOUND: Final = 404
_METHOD_NOT_ALLOWED: Final = 405


def add_edge(app: FastAPI, routes: str) -> None:
    """Give `app` request ids and our errors in place of the framework's.

    Args:
        app: what answers.
        routes: what it answers, as told to those who ask for anything else.
    """

    async def routing_error(request: Request, error: Exception) -> Response:
        return _routing_error(request, error, routes)

    app.add_exception_handler(AnabranchError, _own_error)
    app.add_exception_handler(HTTPException, routing_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_middleware(_Edge, request_ids=RequestIds())


def error_response(error: AnabranchError, headers: dict[str, str] | None = None) -> Response:
    """Return the answer for `error`."""
    sent = dict(headers or {})
    if isinstance(error, Overloaded):
        sent["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
        sent["Anabranch-Retry-After-Ms"] = str(math.ceil(error.retry_after_s * 1000))
    return JSONResponse({"error": error.message}, error.http, sent)


async def _own_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, AnabranchError)
    return error_response(error)


def _routing_error(request: Request, error: Exception, routes: str) -> Response:
    assert isinstance(error, HTTPException)
    place = f"{request.method} {request.url.path[:200]}"
    headers = dict(error.headers or {})
    if error.status_code == _NOT_FOUND:
        return error_response(NotFound(f"no such route: {place}; {routes}"), headers)
    if error.status_code == _METHOD_NOT_ALLOWED:
        allowed = headers.get("Allow", "another method")
        return error_response(MethodNotAllowed(f"{place}: expected {allowed}"), headers)
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers)


async def _validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return error_response(InvalidInput(f"{place[:200]}: {first['msg']}"))


class _Edge:
    """Outermost middleware. Names the request, and answers what nobody expected."""

    def __init__(self, app: ASGIApp, request_ids: RequestIds) -> None:
        self._app = app
        self._request_ids = request_ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope)
        request_id = self._request_ids.choose(sent.get("x-request-id"))
        trace = read_trace(", ".join(sent.getlist("traceparent")), sent.get("tracestate"))
        started = False

        async def send_named(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                if trace is not None:
                    headers.update(dict(trace.entries()))
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except Exception:  # the edge of the request
            _LOGGER.exception(
                "internal error", extra={"event": "internal_error", "request_id": request_id}
            )
            if started:
                raise
            fault = Internal(f"internal error, request {request_id}")
            await error_response(fault)(scope, receive, send_named)
