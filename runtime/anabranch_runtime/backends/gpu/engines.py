"""Engines of graphs on devices, as executors bind them: see `DenseBackend`.

An engine is a graph on every device that a model uses, and one version's weights there. Engines of
versions whose graphs differ in weights alone share all the rest (`reweighted`): no session is
built, nothing is captured, and executors take the other weights in their streams.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
from cuda.core import Device
from numpy.typing import NDArray

from anabranch_runtime.backends.gpu.gates import CaptureGate
from anabranch_runtime.backends.gpu.holders import Holders
from anabranch_runtime.backends.gpu.replays import ReplayPlan
from anabranch_runtime.backends.gpu.runners import GraphRunner, GraphWay
from anabranch_runtime.backends.gpu.slots import Slot
from anabranch_runtime.backends.gpu.weights import DeviceWeights

__all__ = ["GpuBinding", "GpuEngine", "GpuGraph", "GpuStage"]

_STAGES: Final = 1024
"""Stages that a binding keeps; they are views, and own no memory."""

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]
Array = NDArray[np.generic]


class GpuGraph:
    """A graph on one device, with as many holders as there are engines of it.

    Attributes:
        device: where it runs.
        plan: of it; closed by the last holder.
        holders: engines.
    """

    def __init__(self, device: Device, plan: ReplayPlan) -> None:
        self.device = device
        self.plan = plan
        self.holders = Holders(plan.close)


class GpuEngine:
    """See `Engine`.

    Args:
        graphs: the same graph on every device.
        weights: of one version, on the device of each; the engine's from now on.
        way: how the graph is run.
        gate: of the process.
    """

    def __init__(
        self,
        graphs: Sequence[GpuGraph],
        weights: Sequence[DeviceWeights],
        way: GraphWay,
        gate: CaptureGate,
    ) -> None:
        self.graphs = tuple(graphs)
        self.weights = tuple(weights)
        self._way = way
        self._gate = gate
        self._lock = threading.Lock()
        self._bound = [0] * len(self.graphs)
        for graph in self.graphs:
            graph.holders.hold()

    def bind(self) -> "GpuBinding":
        """Return one more executor's hold, on the device that has the fewest."""
        with self._lock:
            place = self._bound.index(min(self._bound))
            self._bound[place] += 1
        graph = self.graphs[place]
        runner = GraphRunner(graph.device, graph.plan, self._way, self._gate)
        return GpuBinding(runner, Holders(runner.close), self.weights[place], place)

    def bind_like(self, binding: "GpuBinding") -> "GpuBinding":
        """Return the same executor's hold on this engine, whose graphs are those of `binding`'s."""
        place = binding.place
        return GpuBinding(binding.runner, binding.holders, self.weights[place], place)

    def reweighted(self, weights: Sequence[DeviceWeights]) -> "GpuEngine":
        """Return an engine of the same graphs with other weights, which are its own from now on."""
        return GpuEngine(self.graphs, weights, self._way, self._gate)

    def close(self) -> None:
        """Free its weights, and the graphs with the last engine of them."""
        member = self._gate.join()
        try:
            with member.working():
                for graph, weights in zip(self.graphs, self.weights, strict=True):
                    graph.device.set_current()
                    weights.close()
                    graph.holders.release()
        finally:
            self._gate.part(member)


class GpuBinding:
    """One executor's hold on an engine; see `Binding`.

    Attributes:
        runner: shared by the bindings of one executor to engines of the same graphs.
        holders: those bindings.
        place: of the device among those of the engine.
    """

    def __init__(
        self, runner: GraphRunner, holders: Holders, weights: DeviceWeights, place: int
    ) -> None:
        self.runner = runner
        self.holders = holders
        self.place = place
        self._weights = weights
        self._stages: OrderedDict[Shapes, GpuStage] = OrderedDict()
        holders.hold()

    def stage(self, shapes: Shapes) -> "GpuStage":
        """Return the stage for these input shapes, on a slot that is padded to a bucket."""
        runner = self.runner
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
        self.holders.release()


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
