"""The gRPC port of one process: a sync grpcio server around the services."""

from concurrent import futures
from typing import Final, cast

import grpc

from anabranch_server.doors import DoorContext
from anabranch_server.rpc.handlers import SideThreads, service_handlers
from anabranch_server.rpc.health import Health
from anabranch_server.rpc.threads import CallThreads
from anabranch_wire.errors import Unavailable
from anabranch_wire.services import INFERENCE, RANKING

__all__ = ["GrpcDoor"]

_SMALL_THREADS: Final = 2
_STREAM_THREADS: Final = 2
_MOST_CALLS: Final = 20_000
_KEEPALIVE_MS: Final = 60_000


class GrpcDoor:
    """Listens from `start` to the end of `drain`; both belong to one thread.

    Calls beyond `threads` wait in grpcio, which has read their headers but not their messages;
    when 64 wait for each thread, further ones are refused with RESOURCE_EXHAUSTED.
    """

    def __init__(
        self,
        context: DoorContext,
        address: str,
        *,
        threads: int = 16,
        max_connection_age_s: float | None = None,
    ) -> None:
        """Bind the port; nothing is answered yet.

        Args:
            context: what calls answer from.
            address: `host:port`; port 0 takes a free one. Several processes may share a port.
            threads: calls that may wait for scores at once.
            max_connection_age_s: age, give or take a tenth, at which clients are asked to
                reconnect; None lets connections live.

        Raises:
            Unavailable: the address cannot be listened on.
        """
        limits = context.limits
        options: list[tuple[str, int]] = [
            ("grpc.max_receive_message_length", limits.max_body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", limits.max_streams),
            ("grpc.max_allowed_incoming_connections", limits.max_connections),
            ("grpc.max_metadata_size", limits.max_header_bytes),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ]
        if max_connection_age_s is not None:
            options.append(("grpc.max_connection_age_ms", round(max_connection_age_s * 1000)))
        self._calls = CallThreads(threads, "grpc-infer", context.clients)
        self._side = SideThreads(
            futures.ThreadPoolExecutor(_SMALL_THREADS, "grpc-small"),
            futures.ThreadPoolExecutor(_STREAM_THREADS, "grpc-stream"),
        )
        self._health = Health(context.lifecycle, (INFERENCE.name, RANKING.name))
        self._server = grpc.server(
            # grpcio asks of it what `CallThreads` has.
            cast(futures.ThreadPoolExecutor, self._calls),
            handlers=list(service_handlers(context, self._health, self._calls, self._side)),
            options=options,
            maximum_concurrent_rpcs=_MOST_CALLS,
        )
        try:
            self._port = self._server.add_insecure_port(address)
        except RuntimeError:
            self._calls.close()
            raise Unavailable(f"gRPC cannot listen on {address}") from None

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

        A door that was never started may be drained too.

        Args:
            grace_s: after this, calls still in flight are cancelled.
        """
        stopped = self._server.stop(grace_s)
        self._health.close()
        stopped.wait()
        self._calls.close()
        for pool in (self._side.small, self._side.streams):
            pool.shutdown(wait=False, cancel_futures=True)
