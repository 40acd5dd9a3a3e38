"""What ONNX Runtime is asked for on a GPU, by a library that writes down what it is asked."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.core", reason="cuda-core is not installed: make setup")

from anabranch_runtime.backends.gpu.blocks import BlockLayout, DeviceTensor
from anabranch_runtime.backends.gpu.ort_cuda_plan import CUDA_PROVIDER, OrtCudaPlan
from anabranch_wire.errors import InvalidInput, Unavailable, Unsupported

FLOAT = np.dtype(np.float32)
X = DeviceTensor("x", FLOAT, (4, 3), 0x1000)
Y = DeviceTensor("y", FLOAT, (4, 1), 0x2000)
W = DeviceTensor("w", FLOAT, (3, 1), 0x3000)


class Options:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value

    add_run_config_entry = add_session_config_entry


class Binding:
    def __init__(self) -> None:
        self._iobinding = self
        self.inputs: list[tuple[Any, ...]] = []
        self.outputs: list[tuple[Any, ...]] = []

    def bind_input(self, *what: Any) -> None:
        self.inputs.append(what)

    def bind_output(self, *what: Any) -> None:
        self.outputs.append(what)

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(shape=lambda: [4, 1]) for _ in self.outputs]


class Library:
    """Stands in for the module onnxruntime."""

    ExecutionMode = SimpleNamespace(ORT_SEQUENTIAL=0)
    SessionOptions = Options
    RunOptions = Options

    def __init__(self, taken: tuple[str, ...] = (CUDA_PROVIDER,), error: str = "") -> None:
        self.taken = list(taken)
        self.error = error
        self.sessions: list[tuple[str, Options, dict[str, str]]] = []
        self.runs: list[tuple[Binding, Options]] = []

    def InferenceSession(self, path: str, options: Options, providers: Any) -> Any:
        if self.error:
            raise RuntimeError(self.error)
        ((name, settings),) = providers
        assert name == CUDA_PROVIDER
        self.sessions.append((path, options, settings))
        return SimpleNamespace(
            get_providers=lambda: self.taken,
            io_binding=Binding,
            _sess=SimpleNamespace(run_with_iobinding=lambda *what: self.runs.append(what)),
        )


class Stream:
    handle = 77

    def __init__(self) -> None:
        self.syncs = 0

    def sync(self) -> None:
        self.syncs += 1


def plan(library: Any, **changed: Any) -> OrtCudaPlan:
    layout = BlockLayout.of([("w", FLOAT, (3, 1))])
    return OrtCudaPlan(library, Path("m.onnx"), ("y",), 1, "key", layout, **changed)


def test_a_session_runs_on_our_stream_and_never_on_the_cpu() -> None:
    library = Library()
    plan(library, memory_bytes=1 << 20).replayer(Stream(), [W])

    ((path, options, settings),) = library.sessions
    assert path == "m.onnx"
    assert options.entries["session.disable_cpu_ep_fallback"] == "1"
    assert settings["user_compute_stream"] == "77"
    assert settings["device_id"] == "1"
    assert settings["enable_cuda_graph"] == "1"
    assert settings["do_copy_in_default_stream"] == "1"
    assert settings["gpu_mem_limit"] == str(1 << 20)


def test_a_provider_that_was_left_out_is_an_error() -> None:
    with pytest.raises(Unavailable, match=r"CPUExecutionProvider instead of the GPU.*doctor"):
        plan(Library(("CPUExecutionProvider",))).replayer(Stream(), [W])


def test_what_the_library_says_is_translated() -> None:
    fallback = (
        "This session contains graph nodes that are assigned to the default CPU EP, "
        "but fallback to CPU EP has been explicitly disabled by the user."
    )
    with pytest.raises(Unsupported, match="CPU alone"):
        plan(Library(error=fallback)).replayer(Stream(), [W])
    with pytest.raises(InvalidInput, match="no such operator"):
        plan(Library(error="no such operator")).replayer(Stream(), [W])


def test_memory_is_bound_once_and_captures_have_numbers_of_their_own() -> None:
    library, stream = Library(), Stream()
    replayer = plan(library).replayer(stream, [W])

    first, second = (replayer.capture([X], [Y]) for _ in range(2))
    assert stream.syncs == 6
    eager = replayer.bind([X], [Y])
    for replay in (first, second, eager, first):
        replay.launch()

    asked = [options.entries["gpu_graph_id"] for _, options in library.runs]
    assert asked == ["1"] * 3 + ["2"] * 3 + ["1", "2", "-1", "1"]
    assert {
        options.entries["disable_synchronize_execution_providers"] for _, options in library.runs
    } == {"1"}
    bound = library.runs[0][0]
    assert bound.inputs == [
        ("x", "cuda", 1, np.float32, (4, 3), 0x1000),
        ("w", "cuda", 1, np.float32, (3, 1), 0x3000),
    ]
    assert bound.outputs == [("y", "cuda", 1, np.float32, (4, 1), 0x2000)]
    assert library.runs[-1][0] is bound
    assert stream.syncs == 6  # a replay waits for nothing


def test_shapes_of_outputs_are_learned_by_a_run() -> None:
    library, stream = Library(), Stream()

    shapes = plan(library).replayer(stream, [W]).output_shapes([X])

    assert shapes == ((4, 1),)
    ((bound, options),) = library.runs
    assert bound.outputs == [("y", "cuda", 1)]
    assert options.entries["gpu_graph_id"] == "-1"
    assert stream.syncs == 1
