"""What surrounds the tensors of an infer call: what the transport knew, how to answer."""

import msgspec

__all__ = ["CallOptions", "ReplyForm"]


class CallOptions(msgspec.Struct, frozen=True, gc=False):
    """What the transport knows of a call.

    Attributes:
        received: `time.monotonic()` when the last byte came.
        timeout_s: shortest time limit that the transport carried; None when it carried none.
        priority: from the transport; the request's own parameter wins.
        routing_key: from the transport; the request's own parameter wins.
        request_id: as it will be echoed.
    """

    received: float
    timeout_s: float | None = None
    priority: int | None = None
    routing_key: str | None = None
    request_id: str = ""


class ReplyForm(msgspec.Struct, frozen=True, gc=False):
    """How the caller wants the answer.

    Attributes:
        id: echoed when the request had one.
        binary: per answered output whether it goes behind the JSON.
    """

    id: str | None
    binary: tuple[bool, ...]
