"""The app of the admin port, put together."""

from typing import Final

from fastapi import FastAPI

from anabranch_server.administration import Administration
from anabranch_server.app.admin_port.actions import add_actions
from anabranch_server.app.admin_port.models import add_models
from anabranch_server.app.admin_port.repository import add_repository
from anabranch_server.app.admin_port.same_site import SameSite
from anabranch_server.app.admin_port.server import add_server
from anabranch_server.app.admin_port.status import add_status_page
from anabranch_server.app.admin_port.tables import add_tables
from anabranch_server.app.documentation import add_documentation
from anabranch_server.app.edge import add_edge
from anabranch_server.app.openapi import describe_app
from anabranch_server.audit import Changes

__all__ = ["create_admin_app"]

_DESCRIPTION: Final = """Looks after an anabranch server.

Times are seconds since 1970. Every answer names its request in `X-Request-Id`, every failure has
the body `{"error": text}`. Bodies are JSON; keys that are not described are refused.

**Actions** (load, unload, reload, rollback, unpin) answer 200 when they have ended within `wait_s`,
and 202 while they are at work: `GET /admin/v1/operations/ID` then says how far they are. An action
that failed is answered with 200 too: its state is `FAILED`, `error` says why, and what was served
before is served still. One action is at work on a model at a time; another is answered with 409.
"""

_TAGS: Final = [
    {"name": "Models", "description": "What is served, what is kept, what went wrong."},
    {"name": "Tables", "description": "Embedding rows that are looked up beside a graph."},
    {"name": "Actions", "description": "Change what is served."},
    {"name": "Server", "description": "Workers, settings, logs, traces."},
    {"name": "Repository", "description": "The Open Inference Protocol's repository extension."},
]


def create_admin_app(administration: Administration, server_version: str) -> FastAPI:
    """Return the app of the admin port.

    Args:
        administration: answers; everything runs on its event loop.
        server_version: package version.
    """
    app = FastAPI(
        title="anabranch admin",
        version=server_version,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        license_info={"name": "Apache-2.0"},
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    changes = Changes(administration)
    app.add_middleware(SameSite)
    add_edge(app, "the API is described at /docs")
    add_models(app, administration, changes)
    add_tables(app, administration)
    add_actions(app, changes)
    add_server(app, administration, changes)
    add_repository(app, administration, changes)
    add_status_page(app, administration, server_version)
    add_documentation(app, lambda: describe_app(app, paths={}, schemas={}))
    return app
