"""The reference backend: ONNX Runtime on the CPU, one intra-op thread, no spinning.

One session per version is shared by all executors (running it is thread-safe, and with one
intra-op thread a run computes on the calling thread); every executor has staging memory and
bindings of its own. A stage learns the shapes of its outputs from its first run and binds outputs
to staging from then on, so the usual batch costs one native call without a dictionary, a list or
an allocation.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.ort_library import (
    build_error,
    bytes_of,
    import_onnxruntime,
    run_error,
    texts_of,
)
from anabranch_runtime.backends.ort_session import OrtSession
from anabranch_runtime.backends.protocol import Shape
from anabranch_runtime.buffers import aligned_array
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.models import DenseModel
from anabranch_wire.errors import Unsupported

__all__ = ["OrtCpuBackend", "OrtCpuBinding", "OrtCpuEngine"]

_STAGES: Final = 256
"""Stages a binding keeps; the least recently used one beyond that is dropped."""

_STAGING_BYTES: Final = 64 * 1024 * 1024
"""Memory of all stages that a binding keeps; a larger batch gets memory for itself alone."""


class OrtCpuBackend:
    """Builds ONNX Runtime sessions on the CPU."""

    name = "ort-cpu"

    def __init__(self) -> None:
        self._library = import_onnxruntime()

    def build(self, model: DenseModel, cancellation: Cancellation | None = None) -> "OrtCpuEngine":
        """Load and optimise `model`; see `DenseBackend.build`."""
        ort = self._library
        for spec in (*model.inputs, *model.outputs):
            if spec.datatype == "BF16":
                raise Unsupported(f"tensor {spec.name!r}: BF16 inputs and outputs do not run here")
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        if model.optimized:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if cancellation is not None:
            cancellation.on_cancel(partial(options.set_load_cancellation_flag, True))
        try:
            session = ort.InferenceSession(
                str(model.path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the library has no common base for its errors
            if cancellation is not None:
                cancellation.check()
            raise build_error(error) from error
        run_options = ort.RunOptions()
        run_options.log_severity_level = 4
        return OrtCpuEngine(session, run_options, model)


class OrtCpuEngine:
    """A session and what its bindings need to know of it; see `Engine`."""

    def __init__(self, session: OrtSession, run_options: object, model: DenseModel) -> None:
        self._session: OrtSession | None = session
        self._run_options = run_options
        self._model = model

    def bind(self) -> "OrtCpuBinding":
        """Make the buffers of one more executor."""
        assert self._session is not None, "the engine is closed"
        return OrtCpuBinding(self._session, self._run_options, self._model)

    def close(self) -> None:
        """Drop the session."""
        self._session = None


class OrtCpuBinding:
    """One executor's stages; see `Binding`."""

    def __init__(self, session: OrtSession, run_options: object, model: DenseModel) -> None:
        self._session: OrtSession | None = session
        self._run_options = run_options
        self._model = model
        self._stages: OrderedDict[tuple[Shape, ...], _Stage] = OrderedDict()

    def stage(self, shapes: tuple[Shape, ...]) -> "_Stage":
        """Return the stage for these input shapes."""
        stages = self._stages
        stage = stages.get(shapes)
        if stage is not None:
            stages.move_to_end(shapes)
            return stage
        assert self._session is not None, "the binding is closed"
        stage = _Stage(self._session, self._run_options, self._model, shapes)
        if stage.is_worth_keeping:
            stages[shapes] = stage
            # Outputs count too, and how large those are shows only after a stage was made.
            while (
                len(stages) > _STAGES or sum([s.nbytes for s in stages.values()]) > _STAGING_BYTES
            ):
                stages.popitem(last=False)
        return stage

    def close(self) -> None:
        """Free the staging memory and let go of the session."""
        self._stages.clear()
        self._session = None


class _Stage:
    """Staging memory of one combination of shapes; see `Stage`."""

    __slots__ = (
        "_has_bytes",
        "_is_learning",
        "_model",
        "_names",
        "_options",
        "_outputs",
        "_run_bound",
        "_session",
        "_staged_outputs",
        "inputs",
        "is_worth_keeping",
    )

    def __init__(
        self,
        session: OrtSession,
        run_options: object,
        model: DenseModel,
        shapes: tuple[Shape, ...],
    ) -> None:
        self._session = session
        self._options = run_options
        self._model = model
        self._names = [spec.name for spec in model.outputs]
        self.inputs: tuple[NDArray[np.generic], ...] = tuple(
            np.empty(shape, dtype=object)
            if spec.datatype == "BYTES"
            else aligned_array(shape, spec.dtype)
            for spec, shape in zip(model.inputs, shapes, strict=True)
        )
        self._outputs: Sequence[NDArray[np.generic]] = ()
        self._staged_outputs: Sequence[NDArray[np.generic]] = ()
        self._has_bytes = any(s.datatype == "BYTES" for s in (*model.inputs, *model.outputs))
        # Strings gain nothing by staging, and would live on in it.
        self.is_worth_keeping = not self._has_bytes and self.nbytes <= _STAGING_BYTES
        self._is_learning = self.is_worth_keeping
        self._run_bound: Callable[[], None] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of staging memory, outputs included once their shapes are learned."""
        return sum([array.nbytes for array in (*self.inputs, *self._staged_outputs)])

    def enqueue(self) -> None:
        """Run the graph on this thread."""
        if self._run_bound is None:
            self._run_unbound()
            if self._is_learning:
                self._is_learning = False
                self._bind()
            return
        try:
            self._run_bound()
        except Exception:
            # Either the inputs are at fault, and this raises, or the shape of an output depends
            # on values, and this stage must not be bound again.
            self._run_unbound()
            self._run_bound = None
        else:
            self._outputs = self._staged_outputs

    def outputs(self) -> Sequence[NDArray[np.generic]]:
        """Return the outputs of the last run."""
        return self._outputs

    def _run_unbound(self) -> None:
        feed = {
            spec.name: texts_of(spec.name, array) if spec.datatype == "BYTES" else array
            for spec, array in zip(self._model.inputs, self.inputs, strict=True)
        }
        try:
            outputs = self._session.run(self._names, feed, self._options)
        except Exception as error:  # the library has no common base for its errors
            raise run_error(error) from error
        self._outputs = [bytes_of(array) for array in outputs] if self._has_bytes else outputs

    def _bind(self) -> None:
        staged = [aligned_array(array.shape, array.dtype) for array in self._outputs]
        binding = self._session.io_binding()
        for spec, array in zip(self._model.inputs, self.inputs, strict=True):
            binding.bind_input(spec.name, "cpu", 0, array.dtype.type, array.shape, _address(array))
        for name, array in zip(self._names, staged, strict=True):
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, _address(array))
        self._staged_outputs = staged
        # The public call costs 2 us a run more than the native one it wraps.
        self._run_bound = partial(
            self._session._sess.run_with_iobinding, binding._iobinding, self._options
        )


def _address(array: NDArray[np.generic]) -> int:
    return int(array.ctypes.data)
