"""A backend whose batches wait until a test lets them go."""

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.backends.protocol import Binding, Engine, Stage
from anabranch_runtime.models import DenseModel

__all__ = ["GatedBackend"]


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
        self.fault: Exception | None = None
        self._inner = OrtCpuBackend()

    def hold(self) -> None:
        """Close the gate, and forget the batches that came to it before."""
        self.gate.clear()
        while self.entered.acquire(blocking=False):
            pass

    def build(self, model: DenseModel) -> Engine:
        """Build `model` behind the gate."""
        return _Engine(self, self._inner.build(model))


class _Engine:
    def __init__(self, backend: GatedBackend, inner: Engine) -> None:
        self._backend = backend
        self._inner = inner

    def bind(self) -> Binding:
        return _Binding(self._backend, self._inner.bind())

    def close(self) -> None:
        self._inner.close()


class _Binding:
    def __init__(self, backend: GatedBackend, inner: Binding) -> None:
        self._backend = backend
        self._inner = inner

    def stage(self, shapes: tuple[tuple[int, ...], ...]) -> Stage:
        return _Stage(self._backend, self._inner.stage(shapes))

    def close(self) -> None:
        self._inner.close()


class _Stage:
    def __init__(self, backend: GatedBackend, inner: Stage) -> None:
        self._backend = backend
        self._inner = inner
        self.inputs = inner.inputs

    def enqueue(self) -> None:
        self._backend.entered.release()
        assert self._backend.gate.wait(20), "the gate was never opened"
        if self._backend.fault is not None:
            raise self._backend.fault
        self._backend.computed += 1
        self._inner.enqueue()

    def outputs(self) -> Sequence[NDArray[np.generic]]:
        return self._inner.outputs()
