"""The gRPC port for operators: repository, log and trace calls, health and reflection."""

import asyncio
from concurrent import futures
from typing import Final

import grpc

from anabranch_server.administration import Administration
from anabranch_server.request_ids import RequestIds
from anabranch_server.rpc.admin_calls import ADMIN_CHANGES, admin_calls
from anabranch_server.rpc.behaviours import StreamRefusal
from anabranch_server.rpc.handlers import SideThreads, side_handlers
from anabranch_server.rpc.health import Health
from anabranch_server.rpc.loop_calls import LoopCall, LoopReadiness
from anabranch_wire.errors import PermissionDenied, Unavailable
from anabranch_wire.services import INFERENCE

__all__ = ["AdminGrpcDoor"]

_SMALL_THREADS: Final = 2
_STREAM_THREADS: Final = 2
_CHANGE_THREADS: Final = 8
_MOST_CALLS: Final = 256
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.max_allowed_incoming_connections", 256),
    ("grpc.keepalive_time_ms", 60_000),
]


class AdminGrpcDoor:
    """Listens from `start` to the end of `drain`; both belong to one thread.

    Calls are answered on the event loop; threads only wait for it. Loads and unloads wait on
    threads of their own, so that the rest is answered beside them.

    Args:
        administration: answers.
        loop: its event loop.
        address: `host:port`; port 0 takes a free one.
        server_version: package version.

    Raises:
        Unavailable: the address cannot be listened on.
    """

    def __init__(
        self,
        administration: Administration,
        loop: asyncio.AbstractEventLoop,
        address: str,
        server_version: str,
    ) -> None:
        self._side = SideThreads(
            futures.ThreadPoolExecutor(_SMALL_THREADS, "admin-small"),
            futures.ThreadPoolExecutor(_STREAM_THREADS, "admin-stream"),
        )
        self._changing = futures.ThreadPoolExecutor(_CHANGE_THREADS, "admin-change")
        self._health = Health(LoopReadiness(administration, loop), (INFERENCE.name,))
        ids = RequestIds()
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                LoopCall(
                    answer, loop, ids, self._changing if name in ADMIN_CHANGES else self._side.small
                )
            )
            for name, answer in admin_calls(administration, server_version).items()
        }
        elsewhere = PermissionDenied("scoring is answered on the data port only")
        methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            StreamRefusal(elsewhere, ids, self._side.small)
        )
        self._server = grpc.server(
            self._side.small,
            handlers=[
                grpc.method_handlers_generic_handler(INFERENCE.name, methods),
                *side_handlers(self._health, ids, self._side),
            ],
            options=_OPTIONS,
            maximum_concurrent_rpcs=_MOST_CALLS,
        )
        try:
            self._port = self._server.add_insecure_port(address)
        except RuntimeError:
            self._end_threads()
            raise Unavailable(f"admin gRPC cannot listen on {address}") from None

    @property
    def port(self) -> int:
        """The bound port."""
        return self._port

    def start(self) -> None:
        """Begin to answer."""
        self._health.start()
        self._server.start()

    def drain(self, grace_s: float) -> None:
        """Refuse new calls, finish those in flight, then close. Blocks until closed.

        Not on the event loop, which has to answer what is in flight. A door that was never started
        may be drained too.

        Args:
            grace_s: after this, calls still in flight are cancelled; what they began goes on.
        """
        stopped = self._server.stop(grace_s)
        self._health.close()
        stopped.wait()
        self._end_threads()

    def _end_threads(self) -> None:
        for pool in (self._side.small, self._side.streams, self._changing):
            pool.shutdown(wait=False, cancel_futures=True)
