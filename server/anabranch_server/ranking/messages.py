"""Messages of `anabranch.v1.Ranking` as doors read them: columns stay the bytes that were sent.

A twin of RankRequest has `bytes` where that has a Column: on the wire they are the same. So the
outside of a request is parsed without what is inside its columns, which native code reads.
"""

from typing import Final, Protocol, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from anabranch_runtime.ranking.requests import Column, RankRequest
from anabranch_wire import ranking
from anabranch_wire.errors import InvalidInput

__all__ = ["MessageOutside", "parse_column", "parse_outside", "request_of"]

_ENTRIES: Final = ("UserEntry", "CandidatesEntry")
_VALUE: Final = 2


class MessageOutside(Protocol):
    """A RankRequest whose columns are serialised messages; see clients/proto."""

    model_name: str
    model_version: str
    id: str
    top_k: int
    explain: bool
    timeout_us: int
    priority: int
    routing_key: str

    @property
    def user(self) -> dict[str, bytes]:
        """Feature -> serialised Column."""
        ...

    @property
    def candidates(self) -> dict[str, bytes]:
        """Feature -> serialised Column."""
        ...

    @property
    def outputs(self) -> list[str]:
        """Heads to answer."""
        ...


def _twin() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto()
    ranking.DESCRIPTOR.CopyToProto(file)
    request = next(one for one in file.message_type if one.name == "RankRequest")
    for entry in request.nested_type:
        if entry.name in _ENTRIES:
            value = next(field for field in entry.field if field.number == _VALUE)
            value.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            value.ClearField("type_name")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{file.package}.RankRequest")
    )


_TWIN: Final = _twin()


def parse_outside(body: bytes) -> MessageOutside:
    """Parse all of a RankRequest but its columns. Any thread.

    Raises:
        InvalidInput: `body` is no such message.
    """
    try:
        return cast(MessageOutside, _TWIN.FromString(body))
    except DecodeError as error:
        raise InvalidInput(f"malformed RankRequest: {error}") from None


def request_of(outside: MessageOutside) -> RankRequest:
    """Return what a message asks for. Columns are copies: the message may go."""
    timeout_us = outside.timeout_us
    return RankRequest(
        form="message",
        user=dict(outside.user),
        candidates=dict(outside.candidates),
        top_k=outside.top_k,
        outputs=tuple(outside.outputs),
        explain=outside.explain,
        id=outside.id,
        timeout_s=timeout_us / 1e6 if timeout_us else None,
        priority=outside.priority,
        routing_key=outside.routing_key or None,
    )


def parse_column(column: Column) -> ranking.Column:
    """Parse a column of a request, as to echo it.

    Raises:
        InvalidInput: it is no serialised Column.
    """
    try:
        return ranking.Column.FromString(bytes(column))
    except DecodeError as error:
        raise InvalidInput(f"malformed Column: {error}") from None
