"""A look at a large message before protobuf parses it.

Parsing turns two bytes of an empty submessage into some sixty bytes of memory, so that a body
within its limit could still ask for gigabytes. A walk over the top-level fields counts the repeated
ones first; it stops at the limit, and small messages, which cannot ask for much, are not walked.
"""

from typing import Final

from anabranch_server.limits import Limits
from anabranch_wire.errors import InvalidInput, TooLarge

__all__ = ["check_envelope"]

_SMALL: Final = 65_536
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES: Final = 10


def check_envelope(body: bytes, limits: Limits) -> None:
    """Return if `body` has few enough top-level fields to be parsed.

    A request that keeps `limits.max_tensors` has at most an input, an output, a raw content and,
    generously, a parameter for each.

    Raises:
        TooLarge: there are more.
        InvalidInput: the fields do not line up.
    """
    if len(body) <= _SMALL:
        return
    left = 4 * limits.max_tensors + 64
    offset = 0
    end = len(body)
    while offset < end:
        left -= 1
        if left < 0:
            raise TooLarge(
                "too many fields in the message: "
                f"at most {limits.max_tensors} inputs and outputs are allowed"
            )
        tag, offset = _varint(body, offset)
        kind = tag & 7
        if kind == _DELIMITED:
            size, offset = _varint(body, offset)
            offset += size
        elif kind == _VARINT:
            _, offset = _varint(body, offset)
        elif kind == _FIXED64:
            offset += 8
        elif kind == _FIXED32:
            offset += 4
        else:
            raise InvalidInput(f"malformed message: wire type {kind} at byte {offset}")
    if offset != end:
        raise InvalidInput("malformed message: the last field reaches past its end")


def _varint(body: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(body[offset : offset + _VARINT_BYTES]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, offset + index + 1
    raise InvalidInput(f"malformed message: no number at byte {offset}")
