"""Sizes that the chunks of a body announce, which the parser keeps to itself.

The parser says when a chunk begins, its data, and when it ends. Where a piece ends in the middle of
a chunk, the line with its size therefore stands right before the data that came.
"""

import re
from typing import Final

__all__ = ["ChunkSizes"]

_DIGITS: Final = re.compile(rb"[0-9A-Fa-f]+")
_MOST_DIGITS: Final = 16  # the parser refuses more


class ChunkSizes:
    """The chunks of one body. `begin`, `add` and `end` are told what the parser says."""

    def __init__(self) -> None:
        self._received: int | None = None  # None between chunks
        self._is_new = False
        self._line = b""

    def begin(self) -> None:
        """The line of a chunk was read."""
        self._received = 0
        self._is_new = True

    def add(self, size: int) -> None:
        """Data of the chunk came."""
        if self._received is not None:
            self._received += size

    def end(self) -> None:
        """The chunk is over."""
        self._received = None

    def missing(self, piece: bytes | memoryview) -> int:
        """Return how much a chunk lacks that began in `piece` and does not end in it; else 0.

        Args:
            piece: what the parser has just read; called for every piece from the one with the end
                of the head on.
        """
        line, self._line = self._line, b""
        is_new, self._is_new = self._is_new, False
        received = self._received
        if received is None:
            text = bytes(piece)
            begin = text.rfind(b"\n") + 1
            # It may go on in the next piece. However many zeros stand in front, they mean nothing.
            self._line = ((b"" if begin else line) + text[begin:]).lstrip(b"0")[: _MOST_DIGITS + 1]
            return 0
        if not is_new:
            return 0
        text = bytes(piece[: len(piece) - received])
        # Its line feed may come alone. Otherwise the data is whole, and the end of it has begun.
        if not text.endswith(b"\r\n") and text != b"\n":
            return 0
        begin = text.rfind(b"\n", 0, -1) + 1
        digits = _DIGITS.match((b"" if begin else line) + text[begin:])
        return int(digits[0], 16) - received if digits else 0
