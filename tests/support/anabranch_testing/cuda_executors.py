"""The smallest executor on a CUDA device: a stream, pinned staging, a captured graph, weights.

It computes `x * weights[0] + weights[1]` for each row, with a kernel `affine` that has a host twin.
The stub driver is tried with it.
"""

import ctypes
from contextlib import ExitStack
from typing import Final

import numpy as np
from cuda.core import (
    Buffer,
    Device,
    Kernel,
    LaunchConfig,
    ObjectCode,
    Stream,
    StreamOptions,
    launch,
)
from numpy.typing import NDArray

from anabranch_runtime.backends.gpu.memory import PinnedMemory
from anabranch_testing.cuda_stub_control import CudaStub, floats_at

__all__ = [
    "ROWS",
    "AffineExecutor",
    "affine_kernel",
    "pinned_floats",
    "plain_stream",
]

ROWS: Final = 64


def affine_kernel(stub: CudaStub) -> Kernel:
    """Register the twin of `affine` and return the kernel."""

    def affine(x: int, weights: int, out: int) -> None:
        scale, shift = floats_at(weights, 2)
        floats_at(out, ROWS)[:] = floats_at(x, ROWS) * scale + shift

    stub.register("affine", affine, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return ObjectCode.from_cubin(b"twin").get_kernel("affine")


def plain_stream(device: Device) -> Stream:
    """Return a stream that does not wait for the default one; the caller closes it."""
    return device.create_stream(options=StreamOptions(nonblocking=True))


def pinned_floats(count: int) -> tuple[Buffer, NDArray[np.float32]]:
    """Return pinned memory and its view, `(count,)` float32; the caller closes the buffer."""
    buffer = PinnedMemory().allocate(count * 4)
    return buffer, floats_at(int(buffer.handle), count)


class AffineExecutor:
    """One stream on which copies, the graph and updates of weights follow one another.

    Calls come from one thread at a time. Memory is allocated before the capture, and freed after
    the stream has come to rest.

    Args:
        device: current in the calling thread.
        kernel: of `affine_kernel`.

    Raises:
        CUDAError: the driver refused; nothing is left behind.
    """

    def __init__(self, device: Device, kernel: Kernel) -> None:
        with ExitStack() as opened:
            self.stream = plain_stream(device)
            opened.callback(self.stream.close)
            self._done = device.create_event()
            opened.callback(self._done.close)
            self.pinned_in, self.x = self._pinned(ROWS, opened)
            self.pinned_out, self.out = self._pinned(ROWS, opened)
            self.pinned_weights, self.weights = self._pinned(2, opened)
            self.device_in = self._on_device(device, ROWS, opened)
            self.device_out = self._on_device(device, ROWS, opened)
            self.device_weights = self._on_device(device, 2, opened)
            builder = self.stream.create_graph_builder()
            opened.callback(builder.close)
            builder.begin_building("thread_local")
            self.pinned_in.copy_to(self.device_in, stream=builder)
            launch(
                builder,
                LaunchConfig(grid=1, block=ROWS),
                kernel,
                self.device_in,
                self.device_weights,
                self.device_out,
            )
            self.device_out.copy_to(self.pinned_out, stream=builder)
            self.graph = builder.end_building().complete()
            opened.callback(self.graph.close)
            self._opened = opened.pop_all()

    def update(self, scale: float, shift: float) -> None:
        """Replace the weights in stream order: replays that were launched before keep theirs."""
        self.weights[:] = scale, shift
        self.pinned_weights.copy_to(self.device_weights, stream=self.stream)

    def launch(self, x: float) -> None:
        """Launch a replay for rows of `x`; the one before has to be waited for."""
        self.x[:] = x
        self.graph.launch(self.stream)
        self.stream.record(self._done)

    def wait(self) -> NDArray[np.float32]:
        """Wait for the replay and return a copy of its results, `(ROWS,)` float32."""
        self._done.sync()
        return self.out.copy()

    def close(self) -> None:
        """Wait for the stream, then free everything."""
        with self._opened:
            self.stream.sync()

    @staticmethod
    def _pinned(count: int, opened: ExitStack) -> tuple[Buffer, NDArray[np.float32]]:
        buffer, view = pinned_floats(count)
        opened.callback(buffer.close)
        return buffer, view

    def _on_device(self, device: Device, count: int, opened: ExitStack) -> Buffer:
        buffer = device.allocate(count * 4, stream=self.stream)
        opened.callback(buffer.close, self.stream)
        return buffer
