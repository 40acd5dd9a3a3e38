"""Freed memory goes back to the system."""

import ctypes
import os

from anabranch_runtime.allocator import give_back_free_memory
from anabranch_testing.server_processes import resources_of

BLOCK = 4096
BLOCKS = 16_384


def test_what_lies_free_between_live_blocks_is_given_back() -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    blocks = [library.malloc(BLOCK) for _ in range(BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    last = library.malloc(
        BLOCK
    )  # lives on above all others, so the heap cannot shrink from its end
    for block in blocks:
        library.free(block)
    before = resources_of(os.getpid())

    assert give_back_free_memory()

    after = resources_of(os.getpid())
    library.free(last)
    assert before is not None
    assert after is not None
    assert before.held_bytes - after.held_bytes > BLOCK * BLOCKS / 2
