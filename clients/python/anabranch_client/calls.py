"""One call as all transports take it: bytes to send, and how the answer is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Answer", "Call"]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        status: HTTP status; 200 over gRPC, where failures never become an answer.
        headers: with lower-case names, of a repeated one the last; trailing metadata over gRPC.
        body: whole.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Call(Generic[T_co]):
    """A request without a place or a time.

    Attributes:
        path: over HTTP below the URL's prefix, percent-encoded; over gRPC of the method.
        read: makes the result of an answer, or raises an error of the tree.
        body: sent as it is.
        headers: sent as they are, with lower-case names.
        method: HTTP verb.
        hedged: whether it may be sent twice to be sooner.
    """

    path: str
    read: Callable[[Answer], T_co]
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    hedged: bool = True
