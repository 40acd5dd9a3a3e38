"""The top level of a serialised message, walked without parsing it."""

from collections.abc import Iterator
from typing import Final

from anabranch_wire.errors import InvalidInput

__all__ = ["DELIMITED", "walk"]

DELIMITED: Final = 2
"""Wire type of bytes, strings, messages and packed lists."""

_VARINT, _FIXED64, _FIXED32 = 0, 1, 5
_VARINT_BYTES: Final = 10


def walk(body: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, begin and end of the content of every field, in order.

    Raises:
        InvalidInput: the fields do not line up. Groups count as that: no message here has any.
    """
    offset = 0
    end = len(body)
    while offset < end:
        tag, offset = _varint(body, offset)
        kind = tag & 7
        begin = offset
        if kind == DELIMITED:
            size, begin = _varint(body, offset)
            offset = begin + size
        elif kind == _VARINT:
            _, offset = _varint(body, offset)
        elif kind == _FIXED64:
            offset += 8
        elif kind == _FIXED32:
            offset += 4
        else:
            raise InvalidInput(f"malformed message: wire type {kind} at byte {offset}")
        if offset > end:
            raise InvalidInput("malformed message: the last field reaches past its end")
        yield tag >> 3, kind, begin, offset


def _varint(body: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(body[offset : offset + _VARINT_BYTES]):
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            return value, offset + index + 1
    raise InvalidInput(f"malformed message: no number at byte {offset}")
