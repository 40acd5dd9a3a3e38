"""A `ReplayPlan` whose graphs are host functions, launched and captured on the stub driver.

What a library would compute on a device runs in a twin of one kernel, on the memory that the launch
was given, when the driver gets to it. It is captured in the mode that ONNX Runtime captures in.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import numpy as np
from cuda.core import LaunchConfig, ObjectCode, launch
from cuda.core.graph import Graph
from numpy.typing import NDArray

from anabranch_runtime.backends.gpu.blocks import BlockLayout, DeviceTensor
from anabranch_runtime.backends.gpu.memory import bytes_at
from anabranch_testing.cuda_stub_control import CudaStub

__all__ = ["Compute", "TwinPlan", "Twins"]

Array = NDArray[Any]
Compute = Callable[[list[Array], list[Array]], list[Array]]
"""Returns the outputs for inputs and weights."""

_KERNEL: Final = "host_twin"


class Twins:
    """The kernel of all twins on one stub, and what each of its launches is to compute."""

    def __init__(self, stub: CudaStub) -> None:
        self._calls: dict[int, Callable[[], None]] = {}
        self._numbers = count(1)
        self.failed: list[BaseException] = []
        pointers = (ctypes.c_void_p,) * 3
        stub.register(_KERNEL, self._run, ctypes.c_int, *pointers)
        self.kernel = ObjectCode.from_cubin(b"twin").get_kernel(_KERNEL)

    def add(self, call: Callable[[], None]) -> int:
        """Return the number that launches of `call` have."""
        number = next(self._numbers)
        self._calls[number] = call
        return number

    def remove(self, number: int) -> None:
        """Forget a call."""
        del self._calls[number]

    def _run(self, number: int, *_: int) -> None:
        try:
            self._calls[number]()
        except BaseException as error:  # it would be lost in the driver
            self.failed.append(error)


class TwinPlan:
    """See `ReplayPlan`.

    Args:
        twins: of the stub.
        weights: that it reads.
        compute: what it computes.
        key: as of a `ReplayPlan`.

    Attributes:
        captured: graphs that were captured.
    """

    def __init__(
        self, twins: Twins, weights: BlockLayout, compute: Compute, key: str = "twin"
    ) -> None:
        self.key = key
        self.weights = weights
        self.twins = twins
        self.compute = compute
        self.captured = 0
        self.is_closed = False

    def replayer(self, stream: Any, weights: Sequence[DeviceTensor]) -> "TwinReplayer":
        """Return what one executor computes with."""
        return TwinReplayer(self, stream, weights)

    def close(self) -> None:
        """Note it."""
        assert not self.is_closed
        self.is_closed = True


class TwinReplayer:
    """See `Replayer`."""

    def __init__(self, plan: TwinPlan, stream: Any, weights: Sequence[DeviceTensor]) -> None:
        self.plan = plan
        self.stream = stream
        self.weights = tuple(weights)

    def output_shapes(self, inputs: Sequence[DeviceTensor]) -> tuple[tuple[int, ...], ...]:
        """Return the shapes for zeros."""
        made = self.plan.compute(_zeros(inputs), _zeros(self.weights))
        return tuple(array.shape for array in made)

    def bind(self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor]) -> "TwinReplay":
        """Return a replay of single launches."""
        return TwinReplay(self, inputs, outputs, is_captured=False)

    def capture(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor]
    ) -> "TwinReplay":
        """Return a replay of a captured graph."""
        replay = TwinReplay(self, inputs, outputs, is_captured=True)
        self.plan.captured += 1
        return replay

    def close(self) -> None:
        """Nothing: it has nothing of its own."""


class TwinReplay:
    """See `Replay`."""

    def __init__(
        self,
        replayer: TwinReplayer,
        inputs: Sequence[DeviceTensor],
        outputs: Sequence[DeviceTensor],
        *,
        is_captured: bool,
    ) -> None:
        plan = replayer.plan
        self._twins = plan.twins
        self._stream = replayer.stream
        weights = replayer.weights

        def call() -> None:
            made = plan.compute(_views(inputs), _views(weights))
            for view, array in zip(_views(outputs), made, strict=True):
                view[...] = array

        self._number = self._twins.add(call)
        self._arguments = (
            ctypes.c_int(self._number),
            *(tensors[0].address if tensors else 0 for tensors in (inputs, weights, outputs)),
        )
        self._graph: Graph | None = None
        if is_captured:
            try:
                self._graph = self._captured()
            except BaseException:
                self._twins.remove(self._number)
                raise

    def launch(self) -> None:
        """Launch the graph, or its kernel."""
        if self._graph is None:
            self._enqueue(self._stream)
        else:
            self._graph.launch(self._stream)

    def close(self) -> None:
        """Free the graph."""
        if self._graph is not None:
            self._graph.close()
        self._twins.remove(self._number)

    def _enqueue(self, stream: Any) -> None:
        launch(stream, LaunchConfig(grid=1, block=1), self._twins.kernel, *self._arguments)

    def _captured(self) -> Graph:
        builder = self._stream.create_graph_builder()
        try:
            builder.begin_building("global")
            self._enqueue(builder)
            return builder.end_building().complete()
        finally:
            builder.close()


def _views(tensors: Sequence[DeviceTensor]) -> list[Array]:
    return [_view(tensor) for tensor in tensors]


def _view(tensor: DeviceTensor) -> Array:
    memory = bytes_at(tensor.address, math.prod(tensor.shape) * tensor.dtype.itemsize)
    return memory.view(tensor.dtype).reshape(tensor.shape)


def _zeros(tensors: Sequence[DeviceTensor]) -> list[Array]:
    return [np.zeros(tensor.shape, tensor.dtype) for tensor in tensors]
