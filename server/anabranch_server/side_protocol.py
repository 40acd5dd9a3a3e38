"""HTTP/1.1 of the ports that few use: uvicorn's, with bounds on what their peers may hold.

All ports share the descriptors of the process: who only holds connections here must not take them
from the data doors.
"""

import asyncio
from typing import ClassVar, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from anabranch_server.limits import Limits

__all__ = ["side_protocol"]

_MAX_CONNECTIONS: Final = 256


class _SideConnection(H11Protocol):
    """One connection. A head must be complete `head_s` after the connection or its first byte.

    How long a connection may rest between two requests is uvicorn's own matter.
    """

    head_s: ClassVar[float]
    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a socket
        """Begin to wait for a head, or refuse the connection."""
        super().connection_made(transport)
        if len(self.connections) > _MAX_CONNECTIONS:
            transport.abort()
        else:
            self._due = self.loop.call_later(self.head_s, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Go on with a head or a body."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._due is None:
            self._due = self.loop.call_later(self.head_s, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


def side_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return the protocol class of a port that is not a data door."""
    return type("SideConnection", (_SideConnection,), {"head_s": limits.header_timeout_s})
