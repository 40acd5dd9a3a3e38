"""Fields of protobuf messages in a file, one after the other: what they hold is passed over.

See https://protobuf.dev/programming-guides/encoding. Memory is a window of the file, whatever its
size.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from anabranch_wire.errors import Corrupt

__all__ = ["Field", "FieldReader"]

_VARINT: Final = 0
_WINDOW: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a protobuf message, as it lies in the file.

    Attributes:
        number: of the field.
        kind: its wire type.
        begin: first byte, its tag.
        body: first byte of what it holds.
        end: after its last byte.
        value: of a varint; 0 for others.
    """

    number: int
    kind: int
    begin: int
    body: int
    end: int
    value: int


class FieldReader:
    """Walks the messages of one open file; for one thread."""

    def __init__(self, file: int, what: str) -> None:
        """Read from a descriptor that stays open; `what` is how messages name the file."""
        self._file = file
        self._what = what
        self._begin = 0
        self._data = b""

    def fields(self, begin: int, end: int) -> Iterator[Field]:
        """Yield the fields of a message.

        Raises:
            Corrupt: it is none.
            OSError: the file cannot be read.
        """
        at = begin
        while at < end:
            tag, body = self._varint(at)
            value = 0
            match tag & 7:
                case 0:
                    value, after = self._varint(body)
                case 1:
                    after = body + 8
                case 2:
                    length, body = self._varint(body)
                    after = body + length
                case 5:
                    after = body + 4
                case kind:
                    raise Corrupt(f"{self._what}: no ONNX model: a field of wire type {kind}")
            if after > end:
                raise Corrupt(f"{self._what}: no ONNX model: a field ends after its message")
            yield Field(tag >> 3, tag & 7, at, body, after, value)
            at = after

    def numbers(self, field: Field) -> Iterator[int]:
        """Yield the numbers of one that repeats, packed into one field or not.

        Raises:
            Corrupt: it is none.
            OSError: the file cannot be read.
        """
        if field.kind == _VARINT:
            yield field.value
            return
        at = field.body
        while at < field.end:
            value, at = self._varint(at)
            yield value

    def text(self, field: Field) -> str:
        """Return the text of a field.

        Raises:
            OSError: the file cannot be read.
        """
        return self._bytes(field.body, field.end - field.body).decode(errors="surrogateescape")

    def _varint(self, at: int) -> tuple[int, int]:
        """Return a number, and the place after it."""
        data = self._bytes(at, 10)
        value = 0
        for index, byte in enumerate(data):
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value, at + index + 1
        raise Corrupt(f"{self._what}: no ONNX model: a number without an end")

    def _bytes(self, at: int, count: int) -> bytes:
        """Return bytes of the file, fewer at its end."""
        begin = at - self._begin
        if begin < 0 or begin + count > len(self._data):
            self._data = os.pread(self._file, max(count, _WINDOW), at)
            self._begin, begin = at, 0
        return self._data[begin : begin + count]
