"""ModelInfer: one message in, scores out, on a handler thread that waits for its ticket."""

import time
from concurrent import futures
from typing import Final, NoReturn

import grpc

from anabranch_runtime.requests import ScoreRequest
from anabranch_server.doors import DoorContext, Protocol
from anabranch_server.oip.deadlines import deadline_for
from anabranch_server.request_ids import RequestIds
from anabranch_server.rpc.encoding import ResponseEncoder
from anabranch_server.rpc.faults import abort, internal_fault
from anabranch_server.rpc.metadata import CallMetadata, address_of, read_metadata
from anabranch_server.rpc.reading import OpenedRequest, RequestReader
from anabranch_server.rpc.replies import RpcTicket, ThreadSink
from anabranch_server.trace_context import TraceContext
from anabranch_wire.errors import AnabranchError, Cancelled, DeadlineExceeded, Overloaded

__all__ = ["InferCall", "InferRefusal"]

_PROTOCOL: Final[Protocol] = "oip_grpc"

_NO_DEADLINE_S: Final = 1e8
"""gRPC states "no deadline" as one that is years away."""


class InferCall:
    """Behaviour of ModelInfer, called by grpcio on its handler threads."""

    def __init__(self, context: DoorContext, request_ids: RequestIds) -> None:
        self._catalog = context.catalog
        self._reader = RequestReader(context.limits)
        self._observer = context.observer
        self._clients = context.clients
        self._most = context.limits.max_in_flight_per_client
        self._request_ids = request_ids
        self._sink = ThreadSink()
        self._encoder = ResponseEncoder()

    def __call__(self, body: bytes, call: grpc.ServicerContext) -> bytes:
        """Answer one serialised request, or abort `call`."""
        began = time.monotonic()
        metadata = read_metadata(call.invocation_metadata())
        request_id = self._request_ids.choose(metadata.request_id)
        trace = metadata.trace
        model = ""
        try:
            opened = self._reader.open(body)
            model = opened.model
            self._check_client(model, call)
            ticket = self._admit(opened, metadata, began, call)
            ticket.version.group.submit(ticket)
            ticket.wait()
            answer = self._encode(opened.id, ticket, call, request_id, trace)
        except AnabranchError as error:
            self._fail(error, model, began, len(body), call, request_id, trace)
        except Exception:  # the edge of the handler thread
            fault = internal_fault(request_id)
            self._fail(fault, model, began, len(body), call, request_id, trace)
        self._observer.scored(
            ticket,
            _PROTOCOL,
            began,
            time.monotonic(),
            len(body),
            len(answer),
            request_id,
            trace,
        )
        return answer

    def _check_client(self, model: str, call: grpc.ServicerContext) -> None:
        """Refuse a call of a client that has too many; those that wait for a thread count too."""
        client = self._clients.find(address_of(call.peer()))
        if client is None:
            return
        try:
            client.check(self._most, counted=1)
        except Overloaded:
            self._observer.shed(model, "client_limit")
            raise

    def _admit(
        self,
        opened: OpenedRequest,
        metadata: CallMetadata,
        began: float,
        call: grpc.ServicerContext,
    ) -> RpcTicket:
        served = self._catalog.resolve(opened.model, opened.selector)
        contents = self._reader.read(opened, served)
        deadline = deadline_for(
            began,
            served.group.settings.queue,
            _remaining_s(call),
            metadata.timeout_s(),
            contents.timeout_s,
        )
        request = ScoreRequest(
            inputs=contents.inputs,
            rows=contents.rows,
            outputs=contents.outputs,
            deadline=deadline,
            priority=contents.priority or metadata.priority(),
            routing_key=(
                metadata.routing_key() if contents.routing_key is None else contents.routing_key
            ),
        )
        ticket = RpcTicket(request, served, self._sink)
        if not call.add_callback(ticket.cancel):
            raise Cancelled("the caller left")
        return ticket

    def _encode(
        self,
        sent_id: str,
        ticket: RpcTicket,
        call: grpc.ServicerContext,
        request_id: str,
        trace: TraceContext | None,
    ) -> bytes:
        assert ticket.outputs is not None
        snapshot = ticket.version.snapshot
        # Trailing, because initial metadata would cost another round through grpcio.
        call.set_trailing_metadata(
            (
                ("x-request-id", request_id),
                ("anabranch-model-version", str(snapshot.version)),
                ("anabranch-delta", str(snapshot.delta)),
                *(trace.entries() if trace is not None else ()),
            )
        )
        return self._encoder.encode(ticket.version, sent_id, ticket.request.outputs, ticket.outputs)

    def _fail(
        self,
        error: AnabranchError,
        model: str,
        began: float,
        bytes_in: int,
        call: grpc.ServicerContext,
        request_id: str,
        trace: TraceContext | None,
    ) -> NoReturn:
        taken_s = time.monotonic() - began
        self._observer.failed(model, _PROTOCOL, error.grpc, taken_s, bytes_in, request_id, trace)
        # Frames of a traceback hold the ticket, which may hold the error: in that circle the
        # model's version would live on until the collector comes.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        abort(call, error, request_id, trace)


class InferRefusal:
    """Behaviour of ModelInfer while too many calls wait for a scoring thread."""

    def __init__(
        self, context: DoorContext, request_ids: RequestIds, threads: futures.ThreadPoolExecutor
    ) -> None:
        self._observer = context.observer
        self._request_ids = request_ids
        self.experimental_thread_pool = threads  # grpcio's name: these run it

    def __call__(self, body: bytes, call: grpc.ServicerContext) -> bytes:
        """Abort `call`; its message is not looked at."""
        metadata = read_metadata(call.invocation_metadata())
        request_id = self._request_ids.choose(metadata.request_id)
        fault = Overloaded("too many calls wait for a thread")
        self._observer.failed("", _PROTOCOL, fault.grpc, 0.0, len(body), request_id, metadata.trace)
        abort(call, fault, request_id, metadata.trace)


def _remaining_s(call: grpc.ServicerContext) -> float | None:
    remaining: float | None = call.time_remaining()
    if remaining is None or remaining > _NO_DEADLINE_S:
        return None
    if remaining <= 0:
        raise DeadlineExceeded("the deadline had passed when the request was read")
    return remaining
