"""The services of the port: which behaviour answers which method on which threads.

Handlers take and return bytes. No generated servicers: grpcio would answer a message that they
cannot parse with INTERNAL.
"""

from concurrent import futures

import grpc
from grpc_health.v1 import health_pb2

from anabranch_server.doors import DoorContext
from anabranch_server.request_ids import RequestIds
from anabranch_server.rpc.answers import parsed
from anabranch_server.rpc.behaviours import HealthWatch, StreamRefusal, UnaryCall
from anabranch_server.rpc.calls import small_calls
from anabranch_server.rpc.health import HEALTH_SERVICE, Health
from anabranch_server.rpc.infer import InferCall
from anabranch_server.rpc.reflection import REFLECTION_SERVICES, ReflectionStream
from anabranch_wire.errors import Unsupported
from anabranch_wire.services import INFERENCE

__all__ = ["service_handlers"]


def service_handlers(
    context: DoorContext,
    health: Health,
    small_threads: futures.ThreadPoolExecutor,
    stream_threads: futures.ThreadPoolExecutor,
) -> "tuple[grpc.GenericRpcHandler[bytes, bytes], ...]":
    """Return one handler per service.

    Args:
        context: what calls answer from.
        health: answers the health service.
        small_threads: run every unary call but ModelInfer, so that probes and metadata are
            answered while all scoring threads wait.
        stream_threads: run reflection, which holds a thread while a stream is open.
    """
    ids = RequestIds()
    inference = {
        name: grpc.unary_unary_rpc_method_handler(UnaryCall(answer, ids, small_threads))
        for name, answer in small_calls(context).items()
    }
    inference["ModelInfer"] = grpc.unary_unary_rpc_method_handler(InferCall(context, ids))
    inference["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
        StreamRefusal(
            Unsupported("streaming is not supported: call ModelInfer"), ids, small_threads
        )
    )
    check = parsed(health_pb2.HealthCheckRequest, health.check)
    statuses = parsed(health_pb2.HealthListRequest, health.statuses)
    probes = {
        "Check": grpc.unary_unary_rpc_method_handler(UnaryCall(check, ids, small_threads)),
        "List": grpc.unary_unary_rpc_method_handler(UnaryCall(statuses, ids, small_threads)),
        "Watch": grpc.unary_stream_rpc_method_handler(
            HealthWatch(health, ids, small_threads),
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        ),
    }
    reflection = {
        "ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(
            ReflectionStream(ids, stream_threads)
        )
    }
    services = {INFERENCE.name: inference, HEALTH_SERVICE: probes}
    services.update(dict.fromkeys(REFLECTION_SERVICES, reflection))
    return tuple(
        grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items()
    )
