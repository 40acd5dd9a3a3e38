"""Backends whose batches wait until a test lets them go, or take as long as it says."""

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.backends.protocol import Binding, Engine, Stage
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.models import DenseModel

__all__ = ["GatedBackend", "TimedBackend"]

Run = Callable[[Stage], None]


class GatedBackend:
    """ONNX Runtime behind a gate. Open at first, so that models can be warmed.

    Attributes:
        gate: batches wait while it is clear.
        entered: released once for every batch that came to the gate.
        computed: number of batches that passed.
        fault: raised in place of computing, when set.
    """

    name = "gated"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.computed = 0
        self.fault: BaseException | None = None
        self._inner = OrtCpuBackend()

    def hold(self) -> None:
        """Close the gate, and forget the batches that came to it before."""
        self.gate.clear()
        while self.entered.acquire(blocking=False):
            pass

    def build(self, model: DenseModel, cancellation: Cancellation | None = None) -> Engine:
        """Build `model` behind the gate."""
        return _Engine(self._run, self._inner.build(model))

    def enter(self) -> None:
        """Come to the gate with a batch and wait until it is open."""
        self.entered.release()
        assert self.gate.wait(20), "the gate was never opened"

    def _run(self, inner: Stage) -> None:
        self.enter()
        if self.fault is not None:
            raise self.fault
        self.computed += 1
        inner.enqueue()


class TimedBackend:
    """ONNX Runtime whose batches take a set time more.

    Attributes:
        batch_s: seconds of every batch.
        row_s: seconds of every row.
        computed: number of batches that were run.
    """

    name = "timed"

    def __init__(self, batch_s: float = 0.0, row_s: float = 0.0) -> None:
        self.batch_s = batch_s
        self.row_s = row_s
        self.computed = 0
        self._inner = OrtCpuBackend()

    def build(self, model: DenseModel, cancellation: Cancellation | None = None) -> Engine:
        """Build `model`."""
        return _Engine(self._run, self._inner.build(model))

    def _run(self, inner: Stage) -> None:
        time.sleep(self.batch_s + self.row_s * len(inner.inputs[0]))
        self.computed += 1
        inner.enqueue()


class _Engine:
    def __init__(self, run: Run, inner: Engine) -> None:
        self._run = run
        self._inner = inner

    def bind(self) -> Binding:
        return _Binding(self._run, self._inner.bind())

    def close(self) -> None:
        self._inner.close()


class _Binding:
    def __init__(self, run: Run, inner: Binding) -> None:
        self._run = run
        self._inner = inner

    def stage(self, shapes: tuple[tuple[int, ...], ...]) -> Stage:
        return _Stage(self._run, self._inner.stage(shapes))

    def close(self) -> None:
        self._inner.close()


class _Stage:
    def __init__(self, run: Run, inner: Stage) -> None:
        self._run = run
        self._inner = inner
        self.inputs = inner.inputs

    def enqueue(self) -> None:
        self._run(self._inner)

    def outputs(self) -> Sequence[NDArray[np.generic]]:
        return self._inner.outputs()
