"""gRPC on an event loop: a channel for each endpoint."""

import time
from collections.abc import Sequence
from typing import Final, cast

import grpc
import grpc.aio

from anabranch_client.addresses import Address
from anabranch_client.calls import Answer, Call
from anabranch_client.grpc_channels import OPTIONS
from anabranch_client.grpc_errors import Metadata, attempt_failed, headers_of

__all__ = ["AsyncGrpcTransport"]


class AsyncGrpcTransport:
    """Channels, opened on first use and again after `close`. Belongs to one event loop.

    Args:
        addresses: of the endpoints.
    """

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses: Final = tuple(addresses)
        self._channels: dict[int, grpc.aio.Channel] = {}

    async def send(self, endpoint: int, call: Call[object], deadline: float) -> Answer:
        """Send a call and return the whole answer; cancelling it cancels the call."""
        address = self._addresses[endpoint]
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = grpc.aio.insecure_channel(f"dns:///{address.authority}", options=OPTIONS)
            self._channels[endpoint] = channel
        sent = channel.unary_unary(call.path, None, None)(
            call.body, timeout=deadline - time.monotonic(), metadata=tuple(call.headers.items())
        )
        try:
            body = await sent
        except grpc.aio.AioRpcError as error:
            metadata = cast(
                Metadata, error.trailing_metadata()
            )  # pairs, which grpc-stubs do not say
            raise attempt_failed(address, error.code(), error.details(), metadata) from None
        return Answer(200, headers_of(cast(Metadata, await sent.trailing_metadata())), body)

    async def close(self) -> None:
        """Close all channels."""
        closed, self._channels = self._channels, {}
        for channel in closed.values():
            await channel.close(None)
