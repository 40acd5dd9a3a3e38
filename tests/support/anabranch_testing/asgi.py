"""Requests to an ASGI app in this process."""

import asyncio

import httpx
from starlette.types import ASGIApp

__all__ = ["fetch"]


def fetch(
    app: ASGIApp,
    path: str,
    *,
    method: str = "GET",
    content: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    """Return the answer of `app`; what it raises is its own affair."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, content=content, headers=headers)

    return asyncio.run(send())
