"""gRPC doors and calls for tests."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import grpc
import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.models import DenseModel
from anabranch_runtime.requests import Ticket
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import GroupSettings, QueueSettings
from anabranch_server.doors import DoorContext
from anabranch_server.rpc import GrpcDoor
from anabranch_wire.oip import ModelInferRequest, ModelInferResponse
from anabranch_wire.services import INFERENCE
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import datatype_of

__all__ = [
    "HeldGroup",
    "call",
    "call_bytes",
    "failure",
    "infer",
    "open_door",
    "raw_request",
    "trailers_of",
]

Metadata = tuple[tuple[str, str], ...]


@contextmanager
def open_door(context: DoorContext, *, threads: int = 4) -> Iterator[tuple[GrpcDoor, grpc.Channel]]:
    """A started door on a free loopback port and a channel to it; both closed at the end."""
    door = GrpcDoor(context, "127.0.0.1:0", threads=threads)
    door.start()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    try:
        with grpc.insecure_channel(f"127.0.0.1:{door.port}", options) as channel:
            yield door, channel
    finally:
        door.drain(1.0)


def call(channel: grpc.Channel, name: str, request: Message) -> Message:
    """Call a method of the inference service."""
    method = INFERENCE.methods[name]
    answer = channel.unary_unary(
        method.path,
        request_serializer=method.request_class.SerializeToString,
        response_deserializer=method.response_class.FromString,
    )
    return cast(Message, answer(request, timeout=20))


def call_bytes(channel: grpc.Channel, path: str, body: bytes) -> bytes:
    """Call any method with any bytes."""
    return cast(bytes, channel.unary_unary(path, None, None)(body, timeout=20))


def infer(
    channel: grpc.Channel,
    request: ModelInferRequest,
    *,
    timeout_s: float = 20.0,
    metadata: Metadata = (),
) -> tuple[ModelInferResponse, dict[str, str | bytes]]:
    """Call ModelInfer; return the response and its trailing metadata."""
    answer = channel.unary_unary(
        INFERENCE.methods["ModelInfer"].path,
        request_serializer=ModelInferRequest.SerializeToString,
        response_deserializer=ModelInferResponse.FromString,
    )
    response, ended = answer.with_call(request, timeout=timeout_s, metadata=metadata)
    return response, trailers_of(ended)


def failure(channel: grpc.Channel, request: ModelInferRequest) -> tuple[str, str]:
    """Call ModelInfer, which must fail; return code name and text."""
    try:
        infer(channel, request)
    except grpc.RpcError as error:
        return error.code().name, error.details() or ""
    raise AssertionError("expected an error")


def trailers_of(call: grpc.Call | grpc.RpcError) -> dict[str, str | bytes]:
    """Trailing metadata of an ended call; errors of a channel are calls too."""
    assert isinstance(call, grpc.Call)
    return {key: value for key, value in call.trailing_metadata()}


def raw_request(model: str, arrays: Mapping[str, NDArray[np.generic]]) -> ModelInferRequest:
    """A request with raw contents; BYTES arrays are not for this one."""
    request = ModelInferRequest(model_name=model)
    for name, array in arrays.items():
        request.inputs.add(name=name, datatype=datatype_of(array.dtype), shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request


class HeldGroup:
    """A group that keeps what it is given until the test says how it ends."""

    def __init__(self, queue: QueueSettings | None = None) -> None:
        self.settings = GroupSettings(queue=queue or QueueSettings())
        self.tickets: list[Ticket] = []
        self.refuse_with: Exception | None = None

    def submit(self, ticket: Ticket) -> None:
        """Keep `ticket`, or raise what the test wants."""
        if self.refuse_with is not None:
            raise self.refuse_with
        ticket.submitted = time.monotonic()
        self.tickets.append(ticket)

    def finish(self) -> None:
        """Answer everything with zeros."""
        tickets, self.tickets = self.tickets, []
        for ticket in tickets:
            outputs = ticket.version.outputs
            ticket.outputs = tuple(
                np.zeros(tuple(max(size, 1) for size in spec.shape), spec.dtype) for spec in outputs
            )
            ticket.started = ticket.finished = time.monotonic()
            ticket.sink.deliver([ticket])

    def serve(self, model: DenseModel, name: str = "held") -> ServedVersion:
        """A version that this group answers."""
        return ServedVersion(
            snapshot=Snapshot(name, 42, 17),
            model=model,
            rules=InputRules(model.inputs, model.rows.input_axes),
            output_index={spec.name: i for i, spec in enumerate(model.outputs)},
            group=cast(SessionGroup, self),
        )
