"""Memory of one combination of shapes, on both sides, with the graph that runs on it.

Inputs lie in one pinned block and one device block of the same layout, so that one copy brings all
of them; outputs likewise. A slot is at work from `launch` until `wait`.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Final

import numpy as np
from cuda.core import Device, EventOptions, Stream
from numpy.typing import NDArray

from anabranch_runtime.backends.gpu.blocks import BlockLayout
from anabranch_runtime.backends.gpu.memory import PinnedBlock
from anabranch_runtime.backends.gpu.replays import Replay, Replayer
from anabranch_runtime.backends.gpu.transfers import Transfers

__all__ = ["Slot"]

_POLL_S: Final = 50e-6
"""Time during which an event is asked for again and again: waking a thread takes as long."""

Shape = tuple[int, ...]


class Slot:
    """Made, used and closed by one executor's thread, its device current.

    Args:
        device: of the executor.
        stream: of the executor.
        transfers: around its graphs.
        replayer: of the graph.
        inputs: name, type and shape of each.
        outputs: name and type of each.
        shapes: of the outputs; None leaves them to the graph.
        is_captured: whether the graph is captured; then nothing else may talk to the driver
            meanwhile.

    Raises:
        CUDAError: the driver refused; nothing is left behind.
        Unsupported: the graph cannot be captured.

    Attributes:
        inputs: views of pinned memory, to be filled while it is not at work.
        outputs: views of pinned memory; what a batch left is there until the next.
        is_captured: as given.
        is_at_work: whether it was launched and not waited for.
        nbytes: of pinned memory; there is as much on the device.
    """

    def __init__(
        self,
        device: Device,
        stream: Stream,
        transfers: Transfers,
        replayer: Replayer,
        inputs: Sequence[tuple[str, "np.dtype[np.generic]", Shape]],
        outputs: Sequence[tuple[str, "np.dtype[np.generic]"]],
        shapes: Sequence[Shape] | None = None,
        *,
        is_captured: bool,
    ) -> None:
        self.is_captured = is_captured
        self.is_at_work = False
        self._transfers = transfers
        with ExitStack() as opened:
            self._done = device.create_event(options=EventOptions(blocking_sync=True))
            opened.callback(self._done.close)
            layout = BlockLayout.of(inputs)
            self._pinned_in = PinnedBlock(layout)
            opened.callback(self._pinned_in.close)
            self._device_in = device.allocate(max(layout.nbytes, 1), stream=stream)
            opened.callback(self._device_in.close, stream)
            tensors_in = layout.at(int(self._device_in.handle))
            try:
                # Whatever fresh memory holds, the graph is tried with zeros, as inputs may be.
                self._pinned_in.buffer.copy_to(self._device_in, stream=stream)
                if shapes is None:
                    shapes = replayer.output_shapes(tensors_in)
                layout_out = BlockLayout.of(
                    (name, dtype, shape)
                    for (name, dtype), shape in zip(outputs, shapes, strict=True)
                )
                self._pinned_out = PinnedBlock(layout_out)
                opened.callback(self._pinned_out.close)
                self._device_out = device.allocate(max(layout_out.nbytes, 1), stream=stream)
                opened.callback(self._device_out.close, stream)
                tensors_out = layout_out.at(int(self._device_out.handle))
                make = replayer.capture if is_captured else replayer.bind
                self._replay: Replay = make(tensors_in, tensors_out)
                opened.callback(self._replay.close)
                transfers.sync()
            except BaseException:
                with suppress(Exception):  # what came first is what is told
                    transfers.sync()  # no memory goes that a copy still reads
                raise
            opened.callback(transfers.sync)
            self._opened = opened.pop_all()
        self.nbytes = layout.nbytes + layout_out.nbytes
        self.inputs: tuple[NDArray[np.generic], ...] = self._pinned_in.arrays
        self.outputs: tuple[NDArray[np.generic], ...] = self._pinned_out.arrays

    def launch(self) -> None:
        """Enqueue copies and graph on what `inputs` hold."""
        self.is_at_work = True
        self._transfers.bring(self._pinned_in.buffer, self._device_in)
        self._replay.launch()
        self._transfers.fetch(self._device_out, self._pinned_out.buffer, self._done)

    def wait(self) -> None:
        """Wait until `outputs` hold what was computed: shortly by asking, then asleep."""
        done = self._done
        end_s = time.monotonic() + _POLL_S
        while not done.is_done:
            if time.monotonic() > end_s:
                done.sync()
                break
        self.is_at_work = False

    def settle(self) -> None:
        """Wait for whatever was enqueued, after a launch that failed half way."""
        self._transfers.sync()
        self.is_at_work = False

    def close(self) -> None:
        """Free everything, after what is at work."""
        self.inputs = self.outputs = ()
        self._opened.close()
