"""Weights on a device: each version's once, and those that an executor's graphs read.

A captured graph reads fixed addresses. So every executor has a block of its own that its graphs
read, and a version is copied into it, in the executor's stream, between two replays: batches that
were enqueued before read the old weights and those after it the new ones, whatever the host does.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import numpy as np
from cuda.core import Buffer, Device, Event, Stream
from numpy.typing import NDArray

from anabranch_runtime.backends.gpu.blocks import BlockLayout, DeviceTensor
from anabranch_runtime.backends.gpu.memory import PinnedMemory, bytes_at

__all__ = ["DeviceWeights", "ExecutorWeights"]

_PIECE: Final = 1 << 20
"""Bytes that are uploaded at once: a larger copy would hold up the inputs of batches behind it."""


class DeviceWeights:
    """The weights of one version in the memory of one device; immutable once they are ready.

    Args:
        layout: where each lies.
        arrays: values, in the order of the layout.
        device: current in the calling thread.
        stream: they are uploaded on; no executor's.

    Raises:
        CUDAError: the driver refused; nothing is left behind.

    Attributes:
        buffer: the block.
    """

    def __init__(
        self,
        layout: BlockLayout,
        arrays: Sequence[NDArray[np.generic]],
        device: Device,
        stream: Stream,
    ) -> None:
        self._stream = stream
        self.buffer = device.allocate(max(layout.nbytes, 1), stream=stream)
        try:
            _upload(layout, arrays, self.buffer, stream)
        except BaseException:
            self.buffer.close(stream)
            raise

    def close(self) -> None:
        """Free them; no executor copies from them any more."""
        self.buffer.close(self._stream)


class ExecutorWeights:
    """The block of weights that one executor's graphs read. For the executor's thread.

    Args:
        layout: where each lies.
        device: current in the calling thread.
        stream: of the executor.

    Attributes:
        tensors: for its replayer.
    """

    def __init__(self, layout: BlockLayout, device: Device, stream: Stream) -> None:
        self._stream = stream
        self._buffer = device.allocate(max(layout.nbytes, 1), stream=stream)
        self._is_empty = not layout.nbytes
        self._held: DeviceWeights | None = None
        self.tensors: tuple[DeviceTensor, ...] = layout.at(int(self._buffer.handle))

    def take(self, weights: DeviceWeights) -> None:
        """Let the replays that are enqueued from now on read `weights`.

        What was uploaded is there: `DeviceWeights` waits for it.
        """
        if self._held is weights:
            return
        self._held = None  # a copy that fails half way leaves neither
        if not self._is_empty:
            weights.buffer.copy_to(self._buffer, stream=self._stream)
        self._held = weights

    def close(self) -> None:
        """Free the block, after what the stream has still to do."""
        self._held = None
        self._buffer.close(self._stream)


def _upload(
    layout: BlockLayout, arrays: Sequence[NDArray[np.generic]], buffer: Buffer, stream: Stream
) -> None:
    """Copy arrays into a block by pieces, through two pieces of pinned memory, and wait."""
    if not layout.nbytes:
        return
    with ExitStack() as opened:
        pinned = []
        for _ in range(2):
            pinned.append(PinnedMemory().allocate(_PIECE))
            opened.callback(pinned[-1].close)
        opened.callback(stream.sync)  # a copy may still read what is about to be freed
        views = [bytes_at(int(one.handle), _PIECE) for one in pinned]
        copied: list[Event | None] = [None, None]
        turn = 0
        for placed, array in zip(layout.tensors, arrays, strict=True):
            flat = np.ascontiguousarray(array, placed.dtype).reshape(-1).view(np.uint8)
            if flat.nbytes != placed.nbytes:
                raise ValueError(f"weight {placed.name!r}: {array.shape}, not {placed.shape}")
            for begin in range(0, flat.nbytes, _PIECE):
                piece = flat[begin : begin + _PIECE]
                earlier = copied[turn]
                if earlier is not None:
                    earlier.sync()
                views[turn][: piece.nbytes] = piece
                address = int(buffer.handle) + placed.offset + begin
                source = Buffer.from_handle(int(pinned[turn].handle), piece.nbytes)
                source.copy_to(Buffer.from_handle(address, piece.nbytes), stream=stream)
                copied[turn] = stream.record()
                turn = 1 - turn
