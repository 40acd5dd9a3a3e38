"""The services of the port: which behaviour answers which method on which threads.

Handlers take and return bytes. No generated servicers: grpcio would answer a message that they
cannot parse with INTERNAL.
"""

from concurrent import futures
from dataclasses import dataclass
from typing import Final

import grpc
from grpc_health.v1 import health_pb2

from anabranch_server.doors import DoorContext
from anabranch_server.request_ids import RequestIds
from anabranch_server.rpc.answers import parsed
from anabranch_server.rpc.behaviours import HealthWatch, StreamRefusal, UnaryCall
from anabranch_server.rpc.calls import small_calls
from anabranch_server.rpc.health import HEALTH_SERVICE, Health
from anabranch_server.rpc.infer import InferCall, InferRefusal
from anabranch_server.rpc.reflection import REFLECTION_SERVICES, ReflectionStream
from anabranch_server.rpc.threads import CallThreads
from anabranch_wire.errors import Unsupported
from anabranch_wire.services import INFERENCE

__all__ = ["SideThreads", "service_handlers", "side_handlers"]

_WAITING_PER_THREAD: Final = 64


@dataclass(frozen=True, slots=True)
class SideThreads:
    """Threads beside the scoring ones.

    Attributes:
        small: run every unary call but ModelInfer, so that probes and metadata are answered while
            all scoring threads wait.
        streams: run reflection, which holds a thread while a stream is open.
    """

    small: futures.ThreadPoolExecutor
    streams: futures.ThreadPoolExecutor


def service_handlers(
    context: DoorContext, health: Health, scoring: CallThreads, side: SideThreads
) -> "tuple[grpc.GenericRpcHandler[bytes, bytes], ...]":
    """Return the handlers of every service.

    Args:
        context: what calls answer from.
        health: answers the health service.
        scoring: the threads that ModelInfer runs on; when too many calls wait for them, further
            ones are refused.
        side: the threads of everything else.
    """
    ids = RequestIds()
    return (
        _InferHandler(context, ids, scoring, side.small),
        grpc.method_handlers_generic_handler(INFERENCE.name, _small_methods(context, ids, side)),
        *side_handlers(health, ids, side),
    )


def side_handlers(
    health: Health, ids: RequestIds, side: SideThreads
) -> "tuple[grpc.GenericRpcHandler[bytes, bytes], ...]":
    """Return the handlers of the services that every gRPC port has: health and reflection."""
    check = parsed(health_pb2.HealthCheckRequest, health.check)
    statuses = parsed(health_pb2.HealthListRequest, health.statuses)
    probes = {
        "Check": grpc.unary_unary_rpc_method_handler(UnaryCall(check, ids, side.small)),
        "List": grpc.unary_unary_rpc_method_handler(UnaryCall(statuses, ids, side.small)),
        "Watch": grpc.unary_stream_rpc_method_handler(
            HealthWatch(health, ids, side.small),
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        ),
    }
    reflection = {
        "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
            ReflectionStream(ids, side.streams)
        )
    }
    return (
        grpc.method_handlers_generic_handler(HEALTH_SERVICE, probes),
        *(grpc.method_handlers_generic_handler(name, reflection) for name in REFLECTION_SERVICES),
    )


def _small_methods(
    context: DoorContext, ids: RequestIds, side: SideThreads
) -> "dict[str, grpc.RpcMethodHandler[bytes, bytes]]":
    methods = {
        name: grpc.unary_unary_rpc_method_handler(UnaryCall(answer, ids, side.small))
        for name, answer in small_calls(context).items()
    }
    no_streams = Unsupported("streaming is not supported: call ModelInfer")
    methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
        StreamRefusal(no_streams, ids, side.small)
    )
    return methods


class _InferHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg] # not generic at run time
    """ModelInfer, or its refusal; asked by grpcio's one polling thread as each call begins."""

    def __init__(
        self,
        context: DoorContext,
        ids: RequestIds,
        scoring: CallThreads,
        small: futures.ThreadPoolExecutor,
    ) -> None:
        self._scoring = scoring
        self._most = _WAITING_PER_THREAD * scoring.count
        self._path = INFERENCE.methods["ModelInfer"].path
        self._infer = grpc.unary_unary_rpc_method_handler(InferCall(context, ids))
        self._refuse = grpc.unary_unary_rpc_method_handler(InferRefusal(context, ids, small))

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        """Return the handler of a call; None if it is another method."""
        if handler_call_details.method != self._path:
            return None
        return self._infer if self._scoring.waiting < self._most else self._refuse
