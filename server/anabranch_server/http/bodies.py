"""A complete body of a hot request, and how it becomes what a session group computes."""

from typing import Final

import msgspec

from anabranch_runtime.requests import ScoreRequest
from anabranch_runtime.served import ServedVersion
from anabranch_server.doors import DoorContext
from anabranch_server.http.content_coding import decompress
from anabranch_server.http.heads import RequestHead
from anabranch_server.http.routes import Encode, Target
from anabranch_server.oip import CallOptions

__all__ = ["Decoded", "HotBody"]

_LONG_JSON_BYTES: Final = 131_072
_LONG_CODED_BYTES: Final = 4096


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """What a body came to.

    Attributes:
        request: what to compute.
        served: the version that computes it.
        encode: makes the answer.
    """

    request: ScoreRequest
    served: ServedVersion
    encode: Encode


class HotBody(msgspec.Struct, frozen=True, gc=False):
    """A body with what was said about it.

    Attributes:
        target: what its URL means.
        head: what its headers say.
        data: as it was sent.
        received: `time.monotonic()` when its last byte came.
    """

    target: Target
    head: RequestHead
    data: bytes | bytearray
    received: float

    @property
    def is_long(self) -> bool:
        """Whether decoding may take so long that the loop had better not wait for it.

        A compressed body may become a thousand times as large; numbers in JSON take about 1.5 ms a
        megabyte. Binary tensors are not touched at all.
        """
        size = len(self.data)
        head = self.head
        if head.coding is not None:
            return size > _LONG_CODED_BYTES
        return (size if head.json_bytes is None else head.json_bytes) > _LONG_JSON_BYTES

    def decode(self, context: DoorContext) -> Decoded:
        """Decode it for the version that serves now. Any thread.

        Raises:
            AnabranchError: the model is not served, or the body is refused.
        """
        head = self.head
        target = self.target
        served = context.catalog.resolve(target.model, target.selector)
        data = self.data
        if head.coding is not None:
            data = decompress(data, head.coding, context.limits.max_decompressed_bytes)
        options = CallOptions(self.received, head.timeout_s, head.priority)
        request, encode = target.route.decode(data, head.json_bytes, served, options)
        return Decoded(request, served, encode)
