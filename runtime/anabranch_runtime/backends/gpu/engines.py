"""Engines of graphs on devices, as executors bind them: see `DenseBackend`.

An engine is a graph on every device that a model uses, and one version's weights there. Engines of
versions whose graphs differ in weights alone share all the rest (`reweighted`): no session is
built, nothing is captured, and executors take the other weights in their streams.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from cuda.core import Device
from numpy.typing import NDArray

from anabranch_runtime.backends.gpu.gates import CaptureGate
from anabranch_runtime.backends.gpu.padding import Padding
from anabranch_runtime.backends.gpu.replays import ReplayPlan
from anabranch_runtime.backends.gpu.runners import GraphRunner, RunnerSettings
from anabranch_runtime.backends.gpu.slots import Slot
from anabranch_runtime.backends.gpu.weights import DeviceWeights
from anabranch_wire.tensors import TensorSpec

__all__ = ["GpuBinding", "GpuEngine", "GpuGraph", "GpuStage"]

_STAGES: Final = 1024
"""Stages that a binding keeps; they are views, and own no memory."""

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
Array = NDArray[np.generic]


@dataclass(slots=True)
class GpuGraph:
    """A graph on one device, with as many holders as there are engines of it. Any thread.

    Attributes:
        device: where it runs.
        plan: of it.
    """

    device: Device
    plan: ReplayPlan
    _holders: int = field(default=0)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold(self) -> None:
        """Note one more engine."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """Note one engine less, and free the graph with the last."""
        with self._lock:
            self._holders -= 1
            is_last = not self._holders
        if is_last:
            self.plan.close()


class GpuEngine:
    """See `Engine`.

    Args:
        graphs: the same graph on every device.
        weights: of one version, on the device of each; the engine's from now on.
        inputs: of the graph, in its order.
        outputs: of the graph, in its order.
        padding: which shapes it is run with.
        settings: how.
        gate: of the process.
    """

    def __init__(
        self,
        graphs: Sequence[GpuGraph],
        weights: Sequence[DeviceWeights],
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        padding: Padding,
        settings: RunnerSettings,
        gate: CaptureGate,
    ) -> None:
        self.graphs = tuple(graphs)
        self.weights = tuple(weights)
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._padding = padding
        self._settings = settings
        self._gate = gate
        self._lock = threading.Lock()
        self._bound = [0] * len(self.graphs)
        for graph in self.graphs:
            graph.hold()

    @property
    def key(self) -> str:
        """What its graphs are but for their weights."""
        return self.graphs[0].plan.key

    def bind(self) -> "GpuBinding":
        """Return one more executor's hold, on the device that has the fewest."""
        with self._lock:
            place = self._bound.index(min(self._bound))
            self._bound[place] += 1
        graph = self.graphs[place]
        runner = GraphRunner(
            graph.device,
            graph.plan,
            self._inputs,
            self._outputs,
            self._padding,
            self._settings,
            self._gate,
        )
        return GpuBinding(_SharedRunner(runner), self.weights[place], place)

    def bind_like(self, binding: "GpuBinding") -> "GpuBinding":
        """Return the same executor's hold on this engine, whose graphs are those of `binding`'s."""
        return GpuBinding(binding.runner, self.weights[binding.place], binding.place)

    def reweighted(self, weights: Sequence[DeviceWeights]) -> "GpuEngine":
        """Return an engine of the same graphs with other weights, which are its own from now on."""
        return GpuEngine(
            self.graphs,
            weights,
            self._inputs,
            self._outputs,
            self._padding,
            self._settings,
            self._gate,
        )

    def close(self) -> None:
        """Free its weights, and the graphs with the last engine of them."""
        member = self._gate.join()
        try:
            with member.working():
                for graph, weights in zip(self.graphs, self.weights, strict=True):
                    graph.device.set_current()
                    weights.close()
                    graph.release()
        finally:
            self._gate.part(member)


class _SharedRunner:
    """A runner with as many holders as there are bindings of it."""

    def __init__(self, runner: GraphRunner) -> None:
        self.runner = runner
        self._holders = 0
        self._lock = threading.Lock()

    def hold(self) -> None:
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            is_last = not self._holders
        if is_last:
            self.runner.close()


class GpuBinding:
    """One executor's hold on an engine; see `Binding`.

    Attributes:
        runner: shared by the bindings of one executor to engines of the same graphs.
        place: of the device among those of the engine.
    """

    def __init__(self, runner: _SharedRunner, weights: DeviceWeights, place: int) -> None:
        self.runner = runner
        self.place = place
        self._weights = weights
        self._stages: OrderedDict[Shapes, GpuStage] = OrderedDict()
        runner.hold()

    def stage(self, shapes: Shapes) -> "GpuStage":
        """Return the stage for these input shapes, on a slot that is padded to a bucket."""
        runner = self.runner.runner
        slot = runner.slot(runner.padding.padded(shapes))
        stage = self._stages.get(shapes)
        if stage is not None and stage.slot is slot:
            self._stages.move_to_end(shapes)
            return stage
        stage = GpuStage(runner, slot, self._weights, shapes)
        self._stages[shapes] = stage
        self._stages.move_to_end(shapes)
        while len(self._stages) > _STAGES:
            self._stages.popitem(last=False)
        return stage

    def close(self) -> None:
        """Let go of the runner; the last binding of an executor frees it."""
        self._stages.clear()
        self.runner.release()


class GpuStage:
    """Views of a slot for inputs of some shapes; see `Stage`.

    Attributes:
        inputs: the first rows of the slot's pinned inputs.
        slot: that they lie in.
    """

    __slots__ = ("_outputs", "_padded", "_runner", "_weights", "inputs", "slot")

    def __init__(
        self, runner: GraphRunner, slot: Slot, weights: DeviceWeights, shapes: Shapes
    ) -> None:
        padding = runner.padding
        rows = padding.rows(shapes)
        self.slot = slot
        self._runner = runner
        self._weights = weights
        self.inputs: tuple[Array, ...] = tuple(
            [
                array if kind is None else array[: rows[kind]]
                for array, kind in zip(slot.inputs, padding.inputs, strict=True)
            ]
        )
        self._outputs: tuple[Array, ...] = tuple(
            [
                array if kind is None else array[: rows[kind]]
                for array, kind in zip(slot.outputs, padding.outputs, strict=True)
            ]
        )
        self._padded = [
            (array, rows[kind])
            for array, kind in zip(slot.inputs, padding.inputs, strict=True)
            if kind is not None and len(array) > rows[kind]
        ]

    def enqueue(self) -> None:
        """Fill up the slot, and start copies and graph."""
        for array, rows in self._padded:
            # Rows of a batch before might hold what the graph refuses; those of this one are in it.
            array[rows:] = array[rows - 1] if rows else 0
        self._runner.launch(self.slot, self._weights)

    def outputs(self) -> Sequence[Array]:
        """Wait for the batch, and return views of pinned memory."""
        self._runner.finish(self.slot)
        return self._outputs
