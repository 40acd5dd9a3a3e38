"""The seam between streams and the library that computes a graph on them.

A `ReplayPlan` is a graph built for a device without its weights. Each executor has a `Replayer` of
it: on its stream, reading weights from memory of its own. A `Replay` is the graph for one
combination of shapes on fixed memory: launching it takes no argument, allocates nothing and waits
for nothing. Everything here is called by the executor's own thread, with its device current.
"""

from collections.abc import Sequence
from typing import Protocol

from cuda.core import Stream

from anabranch_runtime.backends.gpu.blocks import BlockLayout, DeviceTensor

__all__ = ["Replay", "ReplayPlan", "Replayer"]

Shape = tuple[int, ...]


class Replay(Protocol):
    """A graph bound to memory."""

    def launch(self) -> None:
        """Enqueue it once more on the stream of its replayer."""

    def close(self) -> None:
        """Forget it; none of its launches is at work."""


class Replayer(Protocol):
    """What one executor computes a graph with."""

    def output_shapes(self, inputs: Sequence[DeviceTensor]) -> tuple[Shape, ...]:
        """Return the shapes of the outputs for these inputs; may run the graph, and waits."""
        ...

    def bind(self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor]) -> Replay:
        """Return a replay that launches the graph's kernels one by one."""
        ...

    def capture(self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor]) -> Replay:
        """Return a replay that is one launch of a captured graph; waits.

        No other thread of the process may talk to the driver meanwhile (`CaptureGate`).

        Raises:
            Unsupported: the graph cannot be captured; the message names what stands in the way.
        """
        ...

    def close(self) -> None:
        """Free it; its replays are closed."""


class ReplayPlan(Protocol):
    """A graph built for a device.

    Attributes:
        key: names structure, types, shapes, library and device, but no value of a weight: graphs
            with the same key are replays of each other on other weights.
        weights: what has to lie in an executor's memory, and where.
    """

    key: str
    weights: BlockLayout

    def replayer(self, stream: Stream, weights: Sequence[DeviceTensor]) -> Replayer:
        """Return what one executor computes with, on its stream and its weights."""
        ...

    def close(self) -> None:
        """Free it; its replayers are closed."""
