"""Keeping a worker's memory flat over many reloads.

glibc gives each thread one of several arenas, and from the first large block that is freed it takes
blocks of up to 32 MiB from them too. Every build is in a fresh thread, so the weights of versions
long gone lie about in all arenas: with 16 MB models a worker varied between 250 and 360 MB. Blocks
that are mapped one by one go back to the system when they are freed: 135 MB, and flat.
"""

import ctypes
from typing import Final

__all__ = ["map_large_blocks"]

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 1 << 20
"""Bytes from which a block is mapped by itself. Bodies of usual requests are smaller, and need not
wait for the kernel's pages."""


def map_large_blocks() -> bool:
    """Have large blocks mapped one by one. To be called before there are threads.

    Returns:
        Whether the C library can do that.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGE)) and bool(mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE))
