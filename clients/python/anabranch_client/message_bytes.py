"""Serialised protobuf messages put together from parts, without copying the parts."""

from collections.abc import Sequence

__all__ = ["Part", "delimited"]

Part = bytes | memoryview
"""Bytes; a memoryview has items of one byte."""


def delimited(field: int, parts: Sequence[Part]) -> list[Part]:
    """Return `parts` as one field of wire type LEN."""
    return [_varint(field << 3 | 2) + _varint(sum(map(len, parts))), *parts]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
