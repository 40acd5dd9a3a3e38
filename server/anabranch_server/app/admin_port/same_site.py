"""Refuses changes that a page of another site asks for through an operator's browser.

The admin port has no tokens yet, and loopback is no wall for browsers: any page may send them to
post there. They say where such a request comes from (Fetch Standard, `Origin` header), and send it
for every method but GET and HEAD, which change nothing here.
"""

from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch_server.app.edge import error_response
from anabranch_wire.errors import PermissionDenied

__all__ = ["SameSite"]

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class SameSite:
    """Middleware; callers that send no `Origin`, which is all but browsers, pass."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and scope["method"] not in _READING:
            headers = Headers(scope=scope)
            origin = headers.get("origin")
            if origin is not None and _host(origin) != headers.get("host"):
                fault = PermissionDenied("changes are not taken from pages of other sites")
                await error_response(fault)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
