"""What the hot connections of one event loop share."""

import asyncio
from collections.abc import Sequence

from anabranch_server.doors import DoorContext
from anabranch_server.http.decoders import Decoders
from anabranch_server.http.known_heads import KnownHeads
from anabranch_server.http.loop_sink import LoopSink
from anabranch_server.http.routes import HotRoutes
from anabranch_server.http.tenure import Tenure
from anabranch_server.http.watch import Watch
from anabranch_server.request_ids import RequestIds

__all__ = ["LoopParts", "Shared"]


class LoopParts:
    """The parts that exist once there is a loop.

    Attributes:
        sink: where the tickets of these connections come back.
        watch: the clock.
        decoders: threads for bodies that take long to decode.
    """

    def __init__(self, sink: LoopSink, watch: Watch, decoders: Decoders) -> None:
        self.sink = sink
        self.watch = watch
        self.decoders = decoders


class Shared:
    """Given to every connection of a door.

    Attributes:
        context: catalog, limits, lifecycle, observer.
        routes: the table of hot URLs.
        tenure: how long connections stay.
        known_heads: heads that need no parser.
        request_ids: chooses the ids that answers echo.
        dated_by: the default headers that `dated` was made of.
        dated: those headers as lines.
    """

    def __init__(self, context: DoorContext, routes: HotRoutes, tenure: Tenure) -> None:
        self.context = context
        self.routes = routes
        self.tenure = tenure
        self.known_heads = KnownHeads()
        self.request_ids = RequestIds()
        self._parts: LoopParts | None = None
        self.dated_by: Sequence[tuple[bytes, bytes]] = ()
        self.dated = b""

    def parts(self, loop: asyncio.AbstractEventLoop, idle_s: float) -> LoopParts:
        """Return the parts for `loop`; the first connection makes them.

        Args:
            loop: runs all connections of the door.
            idle_s: how long a connection may be idle.
        """
        if self._parts is None:
            self._parts = LoopParts(
                LoopSink(loop), Watch(loop, self.context.limits, idle_s), Decoders(loop)
            )
        return self._parts

    def date(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Take uvicorn's default headers (the date), whose list it replaces when due."""
        self.dated_by = headers
        self.dated = b"".join(b"%b: %b\r\n" % header for header in headers)
