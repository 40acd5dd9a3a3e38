"""The status page as a route: what an `Administration` says, on one page."""

import time
from typing import Final

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response

from anabranch_server.administration import Administration
from anabranch_server.app.status_page import POLICY, Status, render_status
from anabranch_server.app.status_style import STYLE
from anabranch_wire.errors import Unavailable

__all__ = ["add_status_page"]

_HEADERS: Final = {"Content-Security-Policy": POLICY, "Refresh": "5", "Cache-Control": "no-store"}


def add_status_page(app: FastAPI, administration: Administration, server_version: str) -> None:
    """Add the page and its style."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        fault = ""
        try:
            administration.check_ready()
        except Unavailable as error:
            fault = error.message
        status = Status(
            version=server_version,
            now=time.time(),
            fault=fault,
            models=administration.models(),
            operations=administration.operations(),
            workers=administration.workers(),
        )
        return HTMLResponse(render_status(status), headers=_HEADERS)

    @app.get("/status.css", include_in_schema=False)
    async def style() -> Response:
        return Response(STYLE, media_type="text/css")
