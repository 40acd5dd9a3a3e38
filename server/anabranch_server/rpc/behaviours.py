"""What grpcio calls for everything but ModelInfer and Rank: an answer, with the edge around it.

The attribute `experimental_thread_pool` is grpcio's: it names the threads that run a behaviour.
"""

from collections.abc import Iterator
from concurrent import futures

import grpc
from grpc_health.v1 import health_pb2

from anabranch_server.request_ids import RequestIds
from anabranch_server.rpc.answers import Answer, parse
from anabranch_server.rpc.faults import abort, internal_fault
from anabranch_server.rpc.health import Health, Send
from anabranch_server.rpc.metadata import read_metadata
from anabranch_wire.errors import AnabranchError

__all__ = ["HealthWatch", "StreamRefusal", "UnaryCall"]


class UnaryCall:
    """Answers one request at once."""

    def __init__(
        self, answer: Answer, request_ids: RequestIds, threads: futures.ThreadPoolExecutor
    ) -> None:
        self._answer = answer
        self._request_ids = request_ids
        self.experimental_thread_pool = threads

    def __call__(self, body: bytes, call: grpc.ServicerContext) -> bytes:
        """Answer, or abort `call`."""
        request_id = self._request_ids.choose(read_metadata(call.invocation_metadata()).request_id)
        try:
            answer = self._answer(body)
        except AnabranchError as error:
            abort(call, error, request_id)
        except Exception:  # the edge of the handler thread
            abort(call, internal_fault(request_id), request_id)
        call.set_trailing_metadata((("x-request-id", request_id),))
        return answer


class StreamRefusal:
    """Fails every stream with one error, without reading it."""

    def __init__(
        self, error: AnabranchError, request_ids: RequestIds, threads: futures.ThreadPoolExecutor
    ) -> None:
        self._error = error
        self._request_ids = request_ids
        self.experimental_thread_pool = threads

    def __call__(self, requests: Iterator[bytes], call: grpc.ServicerContext) -> Iterator[bytes]:
        """Abort `call`."""
        request_id = self._request_ids.choose(read_metadata(call.invocation_metadata()).request_id)
        abort(call, self._error, request_id)


class HealthWatch:
    """Watch of the health service: returns at once and leaves the call to `Health`."""

    experimental_non_blocking = True

    def __init__(
        self, health: Health, request_ids: RequestIds, threads: futures.ThreadPoolExecutor
    ) -> None:
        self._health = health
        self._request_ids = request_ids
        self.experimental_thread_pool = threads

    def __call__(
        self,
        body: bytes,
        call: grpc.ServicerContext,
        send_response: Send,
    ) -> None:
        """Begin the watch, or abort `call`."""
        try:
            request = parse(health_pb2.HealthCheckRequest, body)
        except AnabranchError as error:
            abort(call, error, self._request_ids.choose(None))
        self._health.watch(request, send_response)
        if not call.add_callback(lambda: self._health.forget(send_response)):
            self._health.forget(send_response)
