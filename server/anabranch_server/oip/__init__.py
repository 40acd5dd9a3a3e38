"""Open Inference Protocol v2 over HTTP, free of transport: bytes to requests, outputs to bytes."""

from anabranch_server.oip.calls import CallOptions, ReplyForm
from anabranch_server.oip.deadlines import deadline_for
from anabranch_server.oip.decoding import InferDecoder
from anabranch_server.oip.encoding import InferEncoder, Reply

__all__ = [
    "CallOptions",
    "InferDecoder",
    "InferEncoder",
    "Reply",
    "ReplyForm",
    "deadline_for",
]
