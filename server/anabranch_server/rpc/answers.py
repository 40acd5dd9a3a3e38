"""Answers of small calls: serialised request in, serialised response out."""

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from anabranch_wire.errors import AnabranchError, InvalidInput

__all__ = ["Answer", "parse", "parsed", "refusal"]

Answer = Callable[[bytes], bytes]
"""Any thread may call it; raises errors of the tree."""

_Request = TypeVar("_Request", bound=Message)


def parse(request_class: type[_Request], body: bytes) -> _Request:
    """Parse a message.

    Raises:
        InvalidInput: `body` is no such message.
    """
    try:
        return request_class.FromString(body)
    except DecodeError as error:
        raise InvalidInput(f"malformed {request_class.DESCRIPTOR.name}: {error}") from None


def parsed(request_class: type[_Request], answer: Callable[[_Request], Message]) -> Answer:
    """Return `answer` with parsing in front and serialising behind."""
    return lambda body: answer(parse(request_class, body)).SerializeToString()


def refusal(kind: type[AnabranchError], text: str) -> Answer:
    """Return an answer that always fails with `kind`."""

    def refuse(_: bytes) -> bytes:
        raise kind(text)

    return refuse
