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
from anabranch_server.rpc.infer import InferExchange
from anabranch_server.rpc.rank import RankExchange
from anabranch_server.rpc.reflection import REFLECTION_SERVICES, ReflectionStream
from anabranch_server.rpc.scoring import ScoringCall, ScoringRefusal
from anabranch_server.rpc.threads import CallThreads
from anabranch_wire.errors import Unsupported
from anabranch_wire.services import INFERENCE, RANKING

__all__ = ["SideThreads", "service_handlers", "side_handlers"]

_WAITING_PER_THREAD: Final = 64


@dataclass(frozen=True, slots=True)
class SideThreads:
    """Threads beside the scoring ones.

    Attributes:
        small: run every unary call but ModelInfer and Rank, so that probes and metadata are
            answered while all scoring threads wait.
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
        scoring: the threads that ModelInfer and Rank run on; when too many calls wait for them,
            further ones are refused.
        side: the threads of everything else.
    """
    ids = RequestIds()
    return (
        _ScoringHandler(context, ids, scoring, side.small),
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
            ReflectionStream(health.services, ids, side.streams)
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


class _ScoringHandler(grpc.GenericRpcHandler):  # type: ignore[type-arg] # not generic at run time
    """ModelInfer and Rank, or their refusals; grpcio's one polling thread asks as calls begin."""

    def __init__(
        self,
        context: DoorContext,
        ids: RequestIds,
        scoring: CallThreads,
        small: futures.ThreadPoolExecutor,
    ) -> None:
        self._scoring = scoring
        self._most = _WAITING_PER_THREAD * scoring.count
        infer, rank = InferExchange(context.limits), RankExchange(context)
        infer_path = INFERENCE.methods["ModelInfer"].path
        rank_path = RANKING.methods["Rank"].path
        no_infer = ScoringRefusal(context, ids, small, infer.protocol)
        no_rank = ScoringRefusal(context, ids, small, rank.protocol)
        self._calls = {
            infer_path: grpc.unary_unary_rpc_method_handler(ScoringCall(context, ids, infer)),
            rank_path: grpc.unary_unary_rpc_method_handler(ScoringCall(context, ids, rank)),
        }
        self._refusals = {
            infer_path: grpc.unary_unary_rpc_method_handler(no_infer),
            rank_path: grpc.unary_unary_rpc_method_handler(no_rank),
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        """Return the handler of a call; None if it is another method."""
        handlers = self._calls if self._scoring.waiting < self._most else self._refusals
        return handlers.get(handler_call_details.method)
