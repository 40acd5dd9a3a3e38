"""What one executor runs a graph with: its stream, its copy of the weights, its slots.

Everything in here belongs to the thread that first uses it, since a captured graph of ONNX Runtime
can only be replayed by the thread that captured it. What is built is made by that thread, too.
"""

import threading
from collections import OrderedDict
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from cuda.core import Device, StreamOptions

from anabranch_runtime.backends.gpu.faults import device_error
from anabranch_runtime.backends.gpu.gates import CaptureGate, GateMember
from anabranch_runtime.backends.gpu.padding import Padding
from anabranch_runtime.backends.gpu.replays import Replayer, ReplayPlan
from anabranch_runtime.backends.gpu.slots import Slot
from anabranch_runtime.backends.gpu.transfers import StreamsMode, Transfers, open_transfers
from anabranch_runtime.backends.gpu.weights import DeviceWeights, ExecutorWeights
from anabranch_wire.errors import DeviceLost
from anabranch_wire.tensors import TensorSpec

__all__ = ["GraphRunner", "GraphWay", "RunnerSettings"]

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]

_USES: Final = 64
"""Batches of a shape that is no bucket after which it is captured as well."""


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """How graphs are run.

    Attributes:
        streams: whether copies have streams of their own.
        max_captured: graphs that an executor captures at most; each has memory of its own.
        max_bytes: pinned memory of an executor at most, and as much on the device; what is used
            least goes.
        captures: whether graphs are captured at all.
        priority: of the stream; lower numbers go first.
    """

    streams: StreamsMode = "merge"
    max_captured: int = 64
    max_bytes: int = 2 << 30
    captures: bool = True
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class GraphWay:
    """A graph as runners of any device see it, and how they are to run it.

    Attributes:
        inputs: of the graph, in its order.
        outputs: of the graph, in its order.
        padding: which shapes it is run with.
        settings: of its runners.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    padding: Padding
    settings: RunnerSettings


class GraphRunner:
    """Runs one graph for one executor, on whichever weights a batch is to read.

    Args:
        device: to run on.
        plan: of the graph; outlives the runner.
        way: how the graph is run.
        gate: of the process.

    Attributes:
        padding: which shapes the graph is run with.
    """

    def __init__(
        self,
        device: Device,
        plan: ReplayPlan,
        way: GraphWay,
        gate: CaptureGate,
    ) -> None:
        self.padding = way.padding
        self._device = device
        self._plan = plan
        self._inputs = [(spec.name, spec.dtype) for spec in way.inputs]
        self._outputs = [(spec.name, spec.dtype) for spec in way.outputs]
        self._output_shapes = [spec.shape for spec in way.outputs]
        self._settings = way.settings
        self._gate = gate
        self._thread = 0
        self._slots: OrderedDict[Shapes, Slot] = OrderedDict()
        self._uses: dict[Shapes, int] = {}
        self._opened: ExitStack | None = None
        self._lost: str | None = None

    # --- what a batch does ------------------------------------------------------------------------

    def slot(self, shapes: Shapes) -> Slot:
        """Return the slot for inputs of these shapes, padded; made, maybe captured, on first use.

        Raises:
            DeviceLost: the device is gone.
            Unavailable: it has no memory left.
            Unsupported: the graph cannot be run.
        """
        slot = self._slots.get(shapes)
        if slot is not None and (slot.is_captured or not self._is_due(shapes)):
            self._slots.move_to_end(shapes)
            return slot
        self._open()
        try:
            return self._renew(shapes)
        except Exception as error:  # drivers and libraries have no common base for theirs
            raise self._told(error, "making room for a batch") from error

    def launch(self, slot: Slot, weights: DeviceWeights) -> None:
        """Enqueue a batch; `finish` is due before the slot is filled again.

        Raises:
            DeviceLost: the device is gone.
        """
        if self._lost is not None:
            raise DeviceLost(self._lost)
        self._member.enter()
        try:
            self._weights.take(weights)
            slot.launch()
        except Exception as error:
            told = self._told(error, "enqueueing a batch")
            self._settle(slot)
            raise told from error

    def finish(self, slot: Slot) -> None:
        """Wait for a batch, if it is at work.

        Raises:
            DeviceLost: the device is gone.
        """
        if not slot.is_at_work:
            return
        try:
            slot.wait()
        except Exception as error:
            told = self._told(error, "computing a batch")
            self._settle(slot)
            raise told from error
        self._member.leave()

    def close(self) -> None:
        """Free everything: nothing is at work; called by its thread, or after that has ended."""
        if self._opened is None:
            return
        opened, self._opened = self._opened, None
        with suppress(Exception):  # of a lost device; memory of the host goes all the same
            self._device.set_current()
        try:
            with self._member.working():
                for slot in self._slots.values():
                    with suppress(Exception):
                        slot.close()
                self._slots.clear()
                with suppress(Exception):
                    opened.close()
        finally:
            self._gate.part(self._member)

    # --- what it is made of -----------------------------------------------------------------------

    def _open(self) -> None:
        """Make streams and weights, on the thread that uses them."""
        if self._opened is not None:
            if self._thread != threading.get_ident():
                raise RuntimeError("a runner belongs to one thread")
            return
        self._thread = threading.get_ident()
        member: GateMember = self._gate.join()
        try:
            with member.working(), ExitStack() as opened:
                self._device.set_current()
                options = StreamOptions(nonblocking=True, priority=self._settings.priority)
                self._stream = self._device.create_stream(options=options)
                opened.callback(self._stream.close)
                self._transfers: Transfers = open_transfers(
                    self._settings.streams, self._device, self._stream
                )
                opened.callback(self._transfers.close)
                self._weights = ExecutorWeights(self._plan.weights, self._device, self._stream)
                opened.callback(self._weights.close)
                self._replayer: Replayer = self._plan.replayer(self._stream, self._weights.tensors)
                opened.callback(self._replayer.close)
                self._opened = opened.pop_all()
        except Exception as error:
            self._gate.part(member)
            raise self._told(error, "opening a stream") from error
        self._member = member

    def _is_due(self, shapes: Shapes) -> bool:
        """Count a use of a shape that is not captured; whether it is to be captured now."""
        uses = self._uses.get(shapes, 0) + 1
        self._uses[shapes] = uses
        return uses == _USES and self._may_capture()

    def _may_capture(self) -> bool:
        captured = sum([slot.is_captured for slot in self._slots.values()])
        return self._settings.captures and captured < self._settings.max_captured

    def _renew(self, shapes: Shapes) -> Slot:
        """Make the slot of a shape, in place of the one that is not captured yet."""
        had = self._slots.pop(shapes, None)
        is_captured = self._may_capture() and (had is not None or self._is_bucket(shapes))
        if had is not None:
            with self._member.working():
                had.close()
        if is_captured:
            self._rest()
            with self._gate.capturing():
                slot = self._made(shapes, is_captured=True)
        else:
            with self._member.working():
                slot = self._made(shapes, is_captured=False)
        self._slots[shapes] = slot
        self._shrink(shapes)
        return slot

    def _made(self, shapes: Shapes, *, is_captured: bool) -> Slot:
        named = [
            (name, dtype, shape) for (name, dtype), shape in zip(self._inputs, shapes, strict=True)
        ]
        return Slot(
            self._device,
            self._stream,
            self._transfers,
            self._replayer,
            named,
            self._outputs,
            self._known_shapes(shapes),
            is_captured=is_captured,
        )

    def _known_shapes(self, shapes: Shapes) -> list[Shape] | None:
        """Return the shapes of the outputs, None where only a run of the graph tells them."""
        rows = self.padding.rows(shapes)
        known = [
            shape if kind is None else (rows[kind], *shape[1:])
            for shape, kind in zip(self._output_shapes, self.padding.outputs, strict=True)
        ]
        return None if any(-1 in shape for shape in known) else known

    def _is_bucket(self, shapes: Shapes) -> bool:
        """Whether every kind of rows has the size of a bucket."""
        padding = self.padding
        rows = padding.rows(shapes)
        return bool(rows) and all([rows[kind] in padding.buckets[kind].sizes for kind in rows])

    def _shrink(self, kept: Shapes) -> None:
        """Close what is used least, while there is more than may be; captured graphs go last."""
        total = sum([slot.nbytes for slot in self._slots.values()])
        while total > self._settings.max_bytes and len(self._slots) > 1:
            candidates = [
                shapes
                for shapes, slot in self._slots.items()
                if shapes != kept and not slot.is_at_work
            ]
            if not candidates:
                return
            eager = [shapes for shapes in candidates if not self._slots[shapes].is_captured]
            gone = self._slots.pop((eager or candidates)[0])
            total -= gone.nbytes
            with self._member.working():
                gone.close()

    # --- faults -----------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Finish what is at work, so that a capture may begin."""
        for slot in self._slots.values():
            self.finish(slot)

    def _settle(self, slot: Slot) -> None:
        """Bring a slot to rest whose batch failed half way."""
        try:
            slot.settle()
        except Exception as error:
            self._told(error, "coming to rest")
            slot.is_at_work = False
        self._member.leave()

    def _told(self, error: Exception, doing: str) -> Exception:
        told = device_error(error, doing)
        if isinstance(told, DeviceLost) and self._lost is None:
            self._lost = told.message
        return told
