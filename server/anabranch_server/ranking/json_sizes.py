"""How many features a long JSON document names, found before anything is made of them.

A decoder makes objects of a few bytes of text for each member of an object. In short documents they
cannot become much; in long ones members are counted first, a block of the text at a time.
"""

import re
from typing import Final

import numpy as np

__all__ = ["LONG_BYTES", "count_members"]

LONG_BYTES: Final = 1 << 20
"""Documents from here on are looked at."""

_BLOCK: Final = 1 << 20
_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_QUOTE, _COLON, _BACKSLASH = b'":\\'
_MEMBERS: Final = 2
"""Depth of the members of objects in the outermost object."""


def count_members(text: memoryview, most: int) -> int:
    """Return how many members the objects in the outermost object have, all together.

    Exact for JSON; of text that is none, as far as a decoder reads it.

    Args:
        text: the document.
        most: counting ends when there are more.
    """
    count = depth = at = 0
    in_string = False
    while at < len(text) and count <= most:
        block = bytes(text[at : at + _BLOCK])
        if _BACKSLASH in block:
            block = _ESCAPED.sub(b"__", block)
            if block.endswith(b"\\"):  # what it escapes is the first byte of the next block
                block = block[:-1] + b"__"
        at += len(block)
        codes = np.frombuffer(block, np.uint8)
        quoted = np.logical_xor.accumulate(codes == _QUOTE) ^ in_string
        in_string = bool(quoted[-1])
        outside = np.where(quoted, 0, codes)
        steps = np.zeros(len(codes), np.int32)
        steps[(outside == ord("{")) | (outside == ord("["))] = 1
        steps[(outside == ord("}")) | (outside == ord("]"))] = -1
        depths = np.cumsum(steps, dtype=np.int32) + depth
        depth = int(depths[-1])
        count += int(np.count_nonzero((outside == _COLON) & (depths == _MEMBERS)))
    return count
