"""Graphs computed by ONNX Runtime's CUDA provider on our streams, memory and weights.

What is relied on, and where it is said (ONNX Runtime 1.31):

- `user_compute_stream` runs a session on our stream; a session has one, so each executor has a
  session of its own, without weights: those are inputs in the executor's memory;
- with `enable_cuda_graph`, the third run under a `gpu_graph_id` on a thread captures, and runs
  after it replay, on that thread alone; -1 runs without a graph (docs of the provider, PR #19818,
  #15005);
- `disable_synchronize_execution_providers` makes a run return before the device is done (PR
  #28686);
- a run option without `gpu_graph_id` costs 30 us: it is always set.

None of this has run on a GPU: see docs/gpu.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Final

from cuda.core import Stream

from anabranch_runtime.backends.gpu.blocks import BlockLayout, DeviceTensor
from anabranch_runtime.backends.ort_library import build_error, library_text
from anabranch_runtime.backends.ort_session import IoBinding, OrtSession
from anabranch_wire.errors import Unavailable, Unsupported

__all__ = ["CUDA_PROVIDER", "OrtCudaPlan"]

CUDA_PROVIDER: Final = "CUDAExecutionProvider"

_RUNS_TO_CAPTURE: Final = 3
_WITHOUT_GRAPH: Final = -1

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OrtCudaPlan:
    """See `ReplayPlan`.

    Attributes:
        library: onnxruntime.
        graph: ONNX file whose weights are inputs.
        outputs: names, in the graph's order.
        ordinal: of the device.
        memory_bytes: that a session may take on it, beside what is bound; 0 leaves that open.
        key: see `ReplayPlan`.
        weights: see `ReplayPlan`.
    """

    library: ModuleType
    graph: Path
    outputs: tuple[str, ...]
    ordinal: int
    key: str
    weights: BlockLayout
    memory_bytes: int = 0

    def replayer(self, stream: Stream, weights: Sequence[DeviceTensor]) -> "_Replayer":
        """Build a session on a stream; takes as long as that takes.

        Raises:
            InvalidInput: the graph cannot be built.
            Unavailable: the provider was not taken, and its session would compute on the CPU.
            Unsupported: a part of the graph is for the CPU alone.
        """
        return _Replayer(self, _session(self, stream), stream, tuple(weights))

    def close(self) -> None:
        """Nothing: sessions are the replayers'."""


def _session(plan: OrtCudaPlan, stream: Stream) -> OrtSession:
    ort = plan.library
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    provider = {
        "device_id": str(plan.ordinal),
        "user_compute_stream": str(int(stream.handle)),
        "enable_cuda_graph": "1",
        "do_copy_in_default_stream": "1",
        "arena_extend_strategy": "kSameAsRequested",
        "use_tf32": "0",
    }
    if plan.memory_bytes:
        provider["gpu_mem_limit"] = str(plan.memory_bytes)
    try:
        session: OrtSession = ort.InferenceSession(
            str(plan.graph), options, providers=[(CUDA_PROVIDER, provider)]
        )
    except Exception as error:  # the library has no common base for its errors
        text = library_text(error)
        if "cpu_ep_fallback" in text or "fallback to CPU EP" in text:
            raise Unsupported(f"a part of the graph runs on the CPU alone: {text[:400]}") from error
        raise build_error(error) from error
    # Without its libraries the provider is left out with no more than a line in the log.
    taken = session.get_providers()
    if not taken or taken[0] != CUDA_PROVIDER:
        raise Unavailable(
            f"ONNX Runtime computes on {', '.join(taken) or 'nothing'} instead of the GPU: CUDA or "
            "one of its libraries was not found; `anabranch doctor` says which"
        )
    return session


@dataclass(slots=True)
class _Replayer:
    """See `Replayer`."""

    plan: OrtCudaPlan
    session: OrtSession
    stream: Stream
    weights: tuple[DeviceTensor, ...]
    _graphs: "count[int]" = field(default_factory=lambda: count(1))

    def output_shapes(self, inputs: Sequence[DeviceTensor]) -> tuple[Shape, ...]:
        """Run once into memory of the library's, and return what came of it."""
        binding = self._bound(inputs)
        for name in self.plan.outputs:
            binding.bind_output(name, "cuda", self.plan.ordinal)
        self._runs(binding, _WITHOUT_GRAPH)()
        self.stream.sync()
        return tuple(tuple(value.shape()) for value in binding.get_outputs())

    def bind(self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor]) -> "_Replay":
        """Bind memory for runs without a graph."""
        return _Replay(self._runs(self._bound(inputs, outputs), _WITHOUT_GRAPH))

    def capture(self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor]) -> "_Replay":
        """Bind memory and run until the library has captured."""
        run = self._runs(self._bound(inputs, outputs), next(self._graphs))
        for _ in range(_RUNS_TO_CAPTURE):
            run()
            self.stream.sync()
        return _Replay(run)

    def close(self) -> None:
        """Let go of the session, and with it of what it captured."""
        del self.session

    def _bound(
        self, inputs: Sequence[DeviceTensor], outputs: Sequence[DeviceTensor] = ()
    ) -> IoBinding:
        binding, ordinal = self.session.io_binding(), self.plan.ordinal
        for one in (*inputs, *self.weights):
            binding.bind_input(one.name, "cuda", ordinal, one.dtype.type, one.shape, one.address)
        for one in outputs:
            binding.bind_output(one.name, "cuda", ordinal, one.dtype.type, one.shape, one.address)
        return binding

    def _runs(self, binding: IoBinding, graph: int) -> Callable[[], None]:
        options = self.plan.library.RunOptions()
        options.log_severity_level = 4
        options.add_run_config_entry("gpu_graph_id", str(graph))
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        return partial(self.session._sess.run_with_iobinding, binding._iobinding, options)


@dataclass(frozen=True, slots=True)
class _Replay:
    """See `Replay`."""

    launch: Callable[[], None]

    def close(self) -> None:
        """Nothing: what was captured goes with its session."""
