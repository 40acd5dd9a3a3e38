"""Calls that wait for scores: one message in, one out, on a handler thread that waits for a ticket.

What differs between services is an `Exchange`; deadlines, metadata, trailers, bounds and counting
are here.
"""

import time
from collections.abc import Callable
from concurrent import futures
from typing import Final, Generic, NamedTuple, NoReturn, TypeVar
from typing import Protocol as Interface

import grpc

from anabranch_runtime.requests import ScoreRequest, Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import DoorContext, Protocol
from anabranch_server.oip import CallOptions
from anabranch_server.ranking.admission import answer_nothing
from anabranch_server.request_ids import RequestIds
from anabranch_server.rpc.faults import abort, internal_fault
from anabranch_server.rpc.metadata import CallMetadata, address_of, read_metadata
from anabranch_server.rpc.replies import RpcTicket, ThreadSink
from anabranch_server.trace_context import TraceContext
from anabranch_wire.errors import AnabranchError, Cancelled, DeadlineExceeded, Overloaded

__all__ = ["Admitted", "Exchange", "Opened", "ScoringCall", "ScoringRefusal"]

_NO_DEADLINE_S: Final = 1e8
"""gRPC states "no deadline" as one that is years away."""


class Opened(Interface):
    """A message of which only the outside was looked at.

    Attributes:
        model: model name as sent.
        selector: version or label as sent.
    """

    @property
    def model(self) -> str: ...  # noqa: D102  # stands above

    @property
    def selector(self) -> str: ...  # noqa: D102  # stands above


class Admitted(NamedTuple):
    """What a message asks a version to compute.

    Attributes:
        request: to compute.
        encode: makes the answer of a ticket that has its outputs.
        is_empty: whether there is nothing to compute, so that no group need see it.
    """

    request: ScoreRequest
    encode: Callable[[Ticket], bytes]
    is_empty: bool = False


_Opened = TypeVar("_Opened", bound=Opened)


class Exchange(Interface[_Opened]):
    """One method's way from a message to a request, and from outputs to an answer. Any thread.

    Attributes:
        protocol: its name in metrics.
    """

    protocol: Protocol

    def open(self, body: bytes) -> _Opened:
        """Find out which model `body` is for.

        Raises:
            AnabranchError: it is no such message, or too large a one.
        """
        ...

    def admit(self, opened: _Opened, served: ServedVersion, options: CallOptions) -> Admitted:
        """Read the rest of a message for the version that will answer it.

        Raises:
            AnabranchError: the request is refused.
        """
        ...


class ScoringCall(Generic[_Opened]):
    """Behaviour of one method, called by grpcio on its handler threads.

    Args:
        context: what calls answer from.
        request_ids: chooses the ids that answers echo.
        exchange: the method.
    """

    def __init__(
        self, context: DoorContext, request_ids: RequestIds, exchange: Exchange[_Opened]
    ) -> None:
        self._catalog = context.catalog
        self._exchange = exchange
        self._protocol: Final = exchange.protocol
        self._observer = context.observer
        self._clients = context.clients
        self._most = context.limits.max_in_flight_per_client
        self._request_ids = request_ids
        self._sink = ThreadSink()

    def __call__(self, body: bytes, call: grpc.ServicerContext) -> bytes:
        """Answer one serialised request, or abort `call`."""
        began = time.monotonic()
        metadata = read_metadata(call.invocation_metadata())
        request_id = self._request_ids.choose(metadata.request_id)
        trace = metadata.trace
        model = ""
        try:
            opened = self._exchange.open(body)
            model = opened.model
            self._check_client(model, call)
            served = self._catalog.resolve(model, opened.selector)
            options = CallOptions(
                began,
                _shortest(_remaining_s(call), metadata.timeout_s()),
                metadata.priority(),
                metadata.routing_key(),
                request_id,
            )
            admitted = self._exchange.admit(opened, served, options)
            ticket = RpcTicket(admitted.request, served, self._sink)
            if not call.add_callback(ticket.cancel):
                raise Cancelled("the caller left")
            if admitted.is_empty:
                answer_nothing(ticket)
            else:
                served.group.submit(ticket)
                ticket.wait()
            answer = admitted.encode(ticket)
            _set_trailers(call, ticket, request_id, trace)
        except AnabranchError as error:
            self._fail(error, model, began, len(body), call, metadata, request_id)
        except Exception:  # the edge of the handler thread
            fault = internal_fault(request_id)
            self._fail(fault, model, began, len(body), call, metadata, request_id)
        self._observer.scored(
            ticket,
            self._protocol,
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

    def _fail(
        self,
        error: AnabranchError,
        model: str,
        began: float,
        bytes_in: int,
        call: grpc.ServicerContext,
        metadata: CallMetadata,
        request_id: str,
    ) -> NoReturn:
        taken_s, trace = time.monotonic() - began, metadata.trace
        self._observer.failed(
            model, self._protocol, error.grpc, taken_s, bytes_in, request_id, trace
        )
        # Frames of a traceback hold the ticket, which may hold the error: in that circle the
        # model's version would live on until the collector comes.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        abort(call, error, request_id, trace)


class ScoringRefusal:
    """Behaviour of a method while too many calls wait for a scoring thread."""

    def __init__(
        self,
        context: DoorContext,
        request_ids: RequestIds,
        threads: futures.ThreadPoolExecutor,
        protocol: Protocol,
    ) -> None:
        self._observer = context.observer
        self._request_ids = request_ids
        self._protocol: Final = protocol
        self.experimental_thread_pool = threads  # grpcio's name: these run it

    def __call__(self, body: bytes, call: grpc.ServicerContext) -> bytes:
        """Abort `call`; its message is not looked at."""
        metadata = read_metadata(call.invocation_metadata())
        request_id = self._request_ids.choose(metadata.request_id)
        fault = Overloaded("too many calls wait for a thread")
        self._observer.failed(
            "", self._protocol, fault.grpc, 0.0, len(body), request_id, metadata.trace
        )
        abort(call, fault, request_id, metadata.trace)


def _set_trailers(
    call: grpc.ServicerContext, ticket: Ticket, request_id: str, trace: TraceContext | None
) -> None:
    """Name the request and what answered it; initial metadata would cost another round."""
    snapshot = ticket.version.snapshot
    call.set_trailing_metadata(
        (
            ("x-request-id", request_id),
            ("anabranch-model-version", str(snapshot.version)),
            ("anabranch-delta", str(snapshot.delta)),
            *(trace.entries() if trace is not None else ()),
        )
    )


def _shortest(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def _remaining_s(call: grpc.ServicerContext) -> float | None:
    remaining: float | None = call.time_remaining()
    if remaining is None or remaining > _NO_DEADLINE_S:
        return None
    if remaining <= 0:
        raise DeadlineExceeded("the deadline had passed when the request was read")
    return remaining
