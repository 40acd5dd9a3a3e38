"""A small graph on the stub driver: what it computes, its engine, and what it has to answer."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from cuda.core import Device, StreamOptions
from numpy.typing import NDArray

from anabranch_runtime.backends.gpu.blocks import BlockLayout
from anabranch_runtime.backends.gpu.engines import GpuEngine, GpuGraph
from anabranch_runtime.backends.gpu.gates import CaptureGate
from anabranch_runtime.backends.gpu.padding import Buckets, Padding
from anabranch_runtime.backends.gpu.runners import GraphWay, RunnerSettings
from anabranch_runtime.backends.gpu.weights import DeviceWeights
from anabranch_testing.cuda_twins import TwinPlan, Twins
from anabranch_wire.tensors import TensorSpec

__all__ = ["BUCKETS", "COLUMNS", "LinearModel", "ask", "linear", "on_threads"]

Array = NDArray[Any]

COLUMNS: Final = 4
BUCKETS: Final = Buckets((1, 4, 16))

_INPUTS: Final = (TensorSpec("x", "FP32", (-1, COLUMNS)), TensorSpec("shift", "FP32", (1,)))
_OUTPUTS: Final = (TensorSpec("y", "FP32", (-1,)), TensorSpec("version", "FP32", (-1,)))
_WEIGHTS: Final = BlockLayout.of(
    [("w", np.dtype(np.float32), (COLUMNS,)), ("number", np.dtype(np.float32), (1,))]
)


def linear(inputs: list[Array], weights: list[Array]) -> list[Array]:
    """`x @ w + shift`, and the number that lies beside the weights, for each row."""
    (x, shift), (w, number) = inputs, weights
    return [x @ w + shift, np.repeat(number, len(x))]


class LinearModel:
    """The graph on the first device, built for any number of versions.

    The weights of version n are n in every column, so each answer shows what it was computed with.

    Args:
        twins: of the stub.
        settings: of its runners.
        gate: of the process.
        buckets: None for one that must not be padded.
        compute: in place of `linear`.
        plan: makes the plan, in place of a `TwinPlan`.
    """

    def __init__(
        self,
        twins: Twins,
        settings: RunnerSettings | None = None,
        gate: CaptureGate | None = None,
        buckets: Buckets | None = BUCKETS,
        compute: Callable[[list[Array], list[Array]], list[Array]] = linear,
        plan: TwinPlan | None = None,
    ) -> None:
        self.plan = plan or TwinPlan(twins, _WEIGHTS, compute)
        self.gate = gate or CaptureGate()
        self._settings = settings or RunnerSettings()
        kind = None if buckets is None else "row"
        self._padding = Padding(
            (kind, None), (kind, kind), {} if buckets is None else {"row": buckets}
        )
        self._device = Device(0)
        self._uploads = self._device.create_stream(options=StreamOptions(nonblocking=True))

    def weights(self, version: int) -> DeviceWeights:
        """Return the weights of a version, on the device."""
        arrays = [np.full(COLUMNS, version, np.float32), np.array([version], np.float32)]
        return DeviceWeights(_WEIGHTS, arrays, self._device, self._uploads)

    def engine(self, version: int) -> GpuEngine:
        """Return an engine of a version; it frees the graph when it is closed."""
        return GpuEngine(
            [GpuGraph(self._device, self.plan)],
            [self.weights(version)],
            GraphWay(_INPUTS, _OUTPUTS, self._padding, self._settings),
            self.gate,
        )

    def close(self) -> None:
        """Free the stream of uploads."""
        self._uploads.close()


def ask(binding: Any, x: Array, shift: float = 0.0) -> Sequence[Array]:
    """Return copies of what a binding answers."""
    stage = binding.stage((x.shape, (1,)))
    stage.inputs[0][...] = x
    stage.inputs[1][...] = shift
    stage.enqueue()
    return [array.copy() for array in stage.outputs()]


def on_threads(count: int, work: Callable[[int], None]) -> None:
    """Call `work` with 0 to `count` - 1, each on a thread of its own, and wait for all."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
