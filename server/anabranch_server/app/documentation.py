"""`/openapi.json` and `/docs`: the API described, and a page to try it, without a foreign byte."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from swagger_ui_bundle import swagger_ui_path

__all__ = ["add_documentation"]

PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy of pages without script."""

_POLICY: Final = f"{PAGE_POLICY}; script-src 'self'; connect-src 'self'; img-src 'self' data:"
"""Swagger UI styles elements in place and draws its icons from data URLs."""

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>anabranch API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""

_START: Final = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
"""

_ASSETS: Final = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
_CACHED: Final = {"Cache-Control": "public, max-age=86400"}


def add_documentation(app: FastAPI, openapi: Callable[[], dict[str, object]]) -> None:
    """Add the routes.

    Args:
        app: serves them; they are not part of the description themselves.
        openapi: makes the document, each time it is asked for.
    """

    @app.get("/openapi.json", include_in_schema=False)
    def document() -> Response:
        return JSONResponse(openapi())

    @app.get("/docs", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(_PAGE, headers={"Content-Security-Policy": _POLICY})

    @app.get("/docs/start.js", include_in_schema=False)
    async def start() -> Response:
        return Response(_START, media_type="text/javascript")

    for name, media_type in _ASSETS.items():
        app.add_api_route(
            f"/docs/{name}",
            _asset(Path(str(swagger_ui_path)) / name, media_type),
            include_in_schema=False,
        )


def _asset(path: Path, media_type: str) -> Callable[[], Response]:
    def asset() -> Response:
        return FileResponse(path, media_type=media_type, headers=_CACHED)

    return asset
