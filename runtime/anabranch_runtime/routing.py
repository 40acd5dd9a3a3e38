"""Which of several executors a routing key belongs to."""

import re
from typing import Final

from anabranch_runtime.checksums import crc32c

__all__ = ["place_of"]

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


def place_of(key: str | int, places: int) -> int:
    """Return the place of `key` among `places`, the same for ever.

    An integer belongs to its remainder, and so does its decimal text, because headers carry nothing
    else; any other text belongs to the remainder of its CRC-32C.
    """
    if isinstance(key, str):
        key = int(key) if _INTEGER.fullmatch(key) else crc32c(key.encode("utf-8", "surrogatepass"))
    return key % places
