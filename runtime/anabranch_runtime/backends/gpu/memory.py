"""Memory that a host and a device share out between them: pinned, and on the device.

Blocks are allocated while a version is built and freed with it; batches allocate nothing.
"""

import ctypes

import numpy as np
from cuda.bindings import driver
from cuda.core import Buffer, MemoryResource, Stream
from numpy.typing import NDArray

from anabranch_runtime.backends.gpu.blocks import BlockLayout

__all__ = ["PinnedBlock", "PinnedMemory", "bytes_at"]

_PORTABLE = 1
"""CU_MEMHOSTALLOC_PORTABLE: pinned for every device."""


def bytes_at(address: int, count: int) -> NDArray[np.uint8]:
    """Return a view of host memory, `(count,)` uint8; whoever owns the memory keeps it alive."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))


class PinnedMemory(MemoryResource):  # type: ignore[misc]  # its type is decided at import
    """Pinned memory that goes when it is closed, on a lost device too.

    `cuda.core.LegacyPinnedMemoryResource` waits for a stream first, and keeps the memory where that
    fails. Who closes a buffer has waited for those who use it.
    """

    def allocate(self, size: int, *, stream: Stream | None = None) -> Buffer:
        """Return a buffer of `size` bytes.

        Raises:
            MemoryError: the driver refused.
        """
        error, address = driver.cuMemHostAlloc(size, _PORTABLE)
        if error != driver.CUresult.CUDA_SUCCESS:
            if error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise MemoryError(f"{size} bytes of pinned memory")
            raise RuntimeError(f"{error.name}: {size} bytes of pinned memory")
        return Buffer.from_handle(address, size, mr=self)

    def deallocate(self, ptr: int, size: int, *, stream: Stream | None = None) -> None:
        """Free a buffer; an error would be that of an earlier call."""
        driver.cuMemFreeHost(ptr)

    @property
    def is_device_accessible(self) -> bool:
        """True."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """True."""
        return True

    @property
    def device_id(self) -> int:
        """-1: of no device."""
        return -1


class PinnedBlock:
    """Pinned memory that holds the tensors of a layout.

    Attributes:
        buffer: the memory.
        arrays: one view for each tensor; they are invalid once the block is closed.
    """

    __slots__ = ("arrays", "buffer")

    def __init__(self, layout: BlockLayout) -> None:
        self.buffer = PinnedMemory().allocate(max(layout.nbytes, 1))
        memory = bytes_at(int(self.buffer.handle), max(layout.nbytes, 1))
        self.arrays: tuple[NDArray[np.generic], ...] = tuple(
            [
                np.frombuffer(memory, placed.dtype, placed.count, placed.offset).reshape(
                    placed.shape
                )
                for placed in layout.tensors
            ]
        )
        for array in self.arrays:
            array[...] = 0

    def close(self) -> None:
        """Free it; no copy reads or writes it any more."""
        self.arrays = ()
        self.buffer.close()
