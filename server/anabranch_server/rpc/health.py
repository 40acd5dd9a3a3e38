"""grpc.health.v1 from the readiness: Check asks it, Watch is told when it changed.

The service follows the same view as the HTTP probes. Watch holds no thread: grpcio keeps the call
open, and one thread of this module tells every watcher.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckResponse

from anabranch_server.lifecycle import Readiness
from anabranch_wire.errors import NotFound, Unavailable

__all__ = ["HEALTH_SERVICE", "Health", "Send"]

HEALTH_SERVICE: Final = "grpc.health.v1.Health"

Send = Callable[[HealthCheckResponse | None], None]
"""Sends one answer of a Watch; None ends the call."""

_WHOLE: Final = ""
"""Name that stands for all of the server."""
_LOOK_S: Final = 0.1
_CLOSE_S: Final = 1.0
_UNKNOWN: Final = HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)


class Health:
    """Status of the server's services. `start` and `close` belong to the door; else any thread.

    One thread sends to all watchers, so that each sees the statuses in order. It holds no lock
    while it sends: grpcio ends a call on the thread that also completes a send.

    Args:
        readiness: asked from any thread.
        services: names of the port's services.

    Attributes:
        services: as given.
    """

    def __init__(self, readiness: Readiness, services: Sequence[str]) -> None:
        self._readiness = readiness
        self.services: Final = tuple(services)
        self._names: Final = (_WHOLE, *services)
        self._lock = threading.Lock()
        self._watchers: dict[Send, _Watcher] = {}
        self._look = threading.Event()
        self._closing = False
        self._follower = threading.Thread(target=self._follow, name="grpc-health", daemon=True)

    def start(self) -> None:
        """Begin to follow the readiness."""
        self._follower.start()

    def close(self) -> None:
        """Tell watchers the last status, end their calls, follow no longer."""
        self._closing = True
        self._look.set()
        if self._follower.is_alive():
            self._follower.join(_CLOSE_S)

    def check(self, request: health_pb2.HealthCheckRequest) -> HealthCheckResponse:
        """Answer Check.

        Raises:
            NotFound: there is no such service.
        """
        if request.service not in self._names:
            expected = " or ".join(map(repr, self._names))
            raise NotFound(f"service {request.service[:200]!r}: expected {expected}")
        return self._status()

    def statuses(self, _: health_pb2.HealthListRequest) -> health_pb2.HealthListResponse:
        """Answer List."""
        status = self._status()
        return health_pb2.HealthListResponse(statuses=dict.fromkeys(self._names, status))

    def watch(self, request: health_pb2.HealthCheckRequest, send: Send) -> None:
        """Begin a Watch: `send` gets the status soon, and again whenever it changes."""
        with self._lock:
            self._watchers[send] = _Watcher(request.service in self._names)
        self._look.set()

    def forget(self, send: Send) -> None:
        """End a Watch whose caller has left."""
        with self._lock:
            self._watchers.pop(send, None)

    def _status(self) -> HealthCheckResponse:
        try:
            self._readiness.check_ready()
        except Unavailable:
            return HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING)
        return HealthCheckResponse(status=HealthCheckResponse.SERVING)

    def _follow(self) -> None:
        while not self._closing:
            self._look.wait(_LOOK_S)
            self._look.clear()
            self._tell()
        self._tell()  # what changed since the last look, before the end
        for send, _ in self._everyone():
            send(None)

    def _tell(self) -> None:
        for send, watcher in self._everyone():
            status = self._status() if watcher.known else _UNKNOWN
            if status != watcher.told:
                watcher.told = status
                send(status)

    def _everyone(self) -> list[tuple[Send, "_Watcher"]]:
        with self._lock:
            return list(self._watchers.items())


@dataclass(slots=True)
class _Watcher:
    known: bool
    told: HealthCheckResponse | None = None
