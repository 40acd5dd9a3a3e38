"""The hot door of one process, as uvicorn takes it: a class that makes connections."""

import asyncio

from anabranch_server.doors import DoorContext
from anabranch_server.http.connection import HotConnection
from anabranch_server.http.infer_route import InferRoute
from anabranch_server.http.rank_route import RankRoute
from anabranch_server.http.routes import HotRoutes
from anabranch_server.http.shared import Shared
from anabranch_server.http.tenure import Tenure

__all__ = ["hot_protocol"]


def hot_protocol(context: DoorContext, tenure: Tenure | None = None) -> type[asyncio.Protocol]:
    """Return a protocol class for `uvicorn.Config(http=...)`.

    Its hot routes are answered by the session groups of `context`; every other request goes to the
    application that uvicorn was given. All connections must belong to one event loop.

    Args:
        context: what requests are answered from.
        tenure: how long connections stay; None lets them stay.
    """
    routes = HotRoutes([InferRoute(context.limits), RankRoute(context)])
    shared = Shared(context, routes, tenure or Tenure())
    return type("HotProtocol", (HotConnection,), {"shared": shared})
