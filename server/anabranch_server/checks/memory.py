"""How the kernel keeps embedding rows: in pieces of 2 MiB, or of 4 KiB."""

import mmap
import os
from collections.abc import Callable
from typing import Final

import numpy as np

from anabranch_server.checks.check import Check

__all__ = ["check_huge_pages", "collapse"]

_COLLAPSE: Final = 25
"""`MADV_COLLAPSE`, since Linux 6.1; the module `mmap` does not name it."""
_HUGE: Final = 2 << 20
_TRIES: Final = 4


def collapse() -> None:
    """Turn a piece of shared memory into a huge page, as the store does with its own.

    Raises:
        OSError: the kernel does not.
    """
    descriptor = os.memfd_create("doctor", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, 3 * _HUGE)
        with _aligned(descriptor) as memory:
            memory.write(bytes(len(memory)))
            memory.madvise(_COLLAPSE)
    finally:
        os.close(descriptor)


def _aligned(descriptor: int) -> mmap.mmap:
    """Map two pieces, one of which is whole and aligned in memory and file alike.

    The kernel chooses the address, and chooses it again once that is free: the place in the file
    is made to fit it.
    """
    offset = 0
    for _ in range(_TRIES):
        memory = mmap.mmap(descriptor, 2 * _HUGE, offset=offset)
        with memoryview(memory) as view:
            address = np.frombuffer(view, np.uint8).ctypes.data
        if (address - offset) % _HUGE == 0:
            break
        memory.close()
        offset = address % _HUGE
    else:
        memory = mmap.mmap(descriptor, 2 * _HUGE)
    return memory


def check_huge_pages(collapse: Callable[[], None]) -> Check:
    """Huge pages of shared memory, in which lookups of tables are about a third faster.

    Args:
        collapse: tries to make one.
    """
    try:
        collapse()
    except OSError as error:
        remedy = (
            "use Linux 6.1 or newer, and write advise to "
            "/sys/kernel/mm/transparent_hugepage/shmem_enabled: without it lookups are slower"
        )
        return Check("huge pages", "warning", f"shared memory: {error.strerror}", remedy)
    return Check("huge pages", "ok", "shared memory can be collapsed")
