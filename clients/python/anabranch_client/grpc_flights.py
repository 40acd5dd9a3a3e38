"""Blocking gRPC: a channel for each endpoint."""

import queue
import time
from collections.abc import Sequence
from typing import Final, cast

import grpc

from anabranch_client.addresses import Address
from anabranch_client.calls import Answer, Call
from anabranch_client.flights import Flights, Landing
from anabranch_client.grpc_channels import OPTIONS
from anabranch_client.grpc_errors import Metadata, attempt_failed, headers_of
from anabranch_client.policy import Attempt

__all__ = ["GrpcTransport"]


class GrpcTransport:
    """Channels, opened on first use and again after `close`. Any thread may use it.

    Args:
        addresses: of the endpoints.
    """

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses: Final = tuple(addresses)
        self._channels = self._opened()

    def flights(self, *, alone: bool) -> Flights:
        """Return room for the attempts of one call."""
        return _Alone(self) if alone else _Several(self)

    def close(self) -> None:
        """Close all channels; calls on them end as `Unavailable`."""
        closed, self._channels = self._channels, self._opened()
        for channel in closed:
            channel.close()

    def method(self, endpoint: int, path: str) -> "grpc.UnaryUnaryMultiCallable[bytes, bytes]":
        """Return what calls a method, bytes in and bytes out."""
        return self._channels[endpoint].unary_unary(path, None, None)

    def address(self, endpoint: int) -> Address:
        """Return where an endpoint is."""
        return self._addresses[endpoint]

    def _opened(self) -> tuple[grpc.Channel, ...]:
        return tuple(
            grpc.insecure_channel(f"dns:///{address.authority}", options=OPTIONS)
            for address in self._addresses
        )


class _Alone:
    """One attempt at a time, on the thread of the caller: gRPC's quickest way."""

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport: Final = transport
        self._next: tuple[Attempt, Call[object], float] | None = None

    def start(self, attempt: Attempt, call: Call[object], deadline: float) -> None:
        self._next = (attempt, call, deadline)

    def wait(self, until: float) -> Landing | None:
        if self._next is None:
            time.sleep(max(0.0, until - time.monotonic()))
            return None
        (attempt, call, deadline), self._next = self._next, None
        method = self._transport.method(attempt.endpoint, call.path)
        try:
            body, ended = method.with_call(
                call.body, timeout=deadline - time.monotonic(), metadata=tuple(call.headers.items())
            )
        except grpc.RpcError as error:
            return _failed(self._transport, attempt, error)
        return attempt, Answer(200, headers_of(ended.trailing_metadata()), body)

    def cancel(self) -> None:
        self._next = None


class _Several:
    """Attempts beside each other."""

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport: Final = transport
        self._sent: dict[int, grpc.Future[bytes]] = {}
        self._ended: queue.SimpleQueue[Attempt] = queue.SimpleQueue()

    def start(self, attempt: Attempt, call: Call[object], deadline: float) -> None:
        method = self._transport.method(attempt.endpoint, call.path)
        sent = method.future(
            call.body, timeout=deadline - time.monotonic(), metadata=tuple(call.headers.items())
        )
        self._sent[attempt.number] = sent
        sent.add_done_callback(lambda _: self._ended.put(attempt))

    def wait(self, until: float) -> Landing | None:
        try:
            attempt = self._ended.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None
        sent = self._sent.pop(attempt.number)
        try:
            body = sent.result()
        except grpc.RpcError as error:
            return _failed(self._transport, attempt, error)
        assert isinstance(sent, grpc.Call)
        return attempt, Answer(200, headers_of(sent.trailing_metadata()), body)

    def cancel(self) -> None:
        for sent in self._sent.values():
            sent.cancel()
        self._sent.clear()


def _failed(transport: GrpcTransport, attempt: Attempt, error: grpc.RpcError) -> Landing | None:
    assert isinstance(error, grpc.Call)
    failed = attempt_failed(
        transport.address(attempt.endpoint),
        error.code(),
        error.details(),
        cast(Metadata, error.trailing_metadata()),  # pairs, which grpc-stubs do not say
    )
    return None if isinstance(failed, TimeoutError) else (attempt, failed)
