"""Real graphs through engines on the stub, computed by ONNX Runtime on the CPU as their twin.

What is shown is that inputs, weights and outputs of any type and shape get to the graph and back,
in every bucket, and under weights that change; not what a GPU computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from cuda.core import Device, StreamOptions
from numpy.typing import NDArray

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.lifting import LiftedGraph, lift_weights
from anabranch_graph_opt.model_source import open_model
from anabranch_runtime.backends.gpu.blocks import BlockLayout
from anabranch_runtime.backends.gpu.engines import GpuEngine, GpuGraph
from anabranch_runtime.backends.gpu.gates import CaptureGate
from anabranch_runtime.backends.gpu.padding import Buckets, Padding
from anabranch_runtime.backends.gpu.runners import GraphWay, RunnerSettings
from anabranch_runtime.backends.gpu.weights import DeviceWeights
from anabranch_testing.corpus import CorpusModel, corpus_models, tree_models
from anabranch_testing.cuda_stub_control import CudaStub
from anabranch_testing.cuda_twins import TwinPlan, Twins
from anabranch_testing.gpu_models import on_threads
from anabranch_wire.tensors import TensorSpec

Array = NDArray[Any]
DATATYPES = {
    "f4": "FP32", "f8": "FP64", "f2": "FP16", "i8": "INT64", "i4": "INT32", "i2": "INT16",
    "i1": "INT8", "u1": "UINT8", "b1": "BOOL",
}  # fmt: skip
LARGEST = 64 << 20
UPDATES = 25_000
"""Of each of four executors: 10^5 together."""


@pytest.fixture(scope="session")
def twins(loaded_stub: CudaStub) -> Twins:
    return Twins(loaded_stub)


def is_fit(model: CorpusModel) -> bool:
    """Whether it may be padded, and is of a kind and size that are run here."""
    arrays = [*model.batches()[0].values(), *model.expected()[0].values()]
    return (
        bool(model.row_independent)
        and (model.folder / "model.onnx").stat().st_size <= LARGEST
        and all([array.dtype.str[1:] in DATATYPES and array.ndim > 0 for array in arrays])
        and len({len(array) for array in arrays}) == 1
    )


MODELS = [model for model in corpus_models() or tree_models() if is_fit(model)]


@dataclass(frozen=True, eq=False)
class OnDevice:
    """A real graph, its weights lifted, as an engine on the stub."""

    lifted: LiftedGraph
    session: Any
    names: Sequence[str]
    outputs: Sequence[str]
    layout: BlockLayout

    @classmethod
    def of(cls, model: ir.Model) -> "OnDevice":
        lifted = lift_weights(model)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            graph_bytes(lifted.model), options, providers=["CPUExecutionProvider"]
        )
        count = len(lifted.weights)
        names = [one.name for one in session.get_inputs()]
        layout = BlockLayout.of(
            (str(one.name), one.numpy().dtype, tuple(one.shape.numpy())) for one in lifted.weights
        )
        outputs = [one.name for one in session.get_outputs()]
        return cls(lifted, session, names[: len(names) - count], outputs, layout)

    def compute(self, inputs: Sequence[Array], weights: Sequence[Array]) -> list[Array]:
        """Run the graph on the CPU."""
        fed = dict(zip(self.names, inputs, strict=True))
        fed |= {placed.name: w for placed, w in zip(self.layout.tensors, weights, strict=True)}
        return list(self.session.run(self.outputs, fed))

    @property
    def weights(self) -> list[Array]:
        return [one.numpy() for one in self.lifted.weights]


class Served:
    """An engine of a real graph and what it takes to close it."""

    def __init__(self, twins: Twins, graph: OnDevice, inputs: Sequence[Array]) -> None:
        self.device = Device(0)
        self.uploads = self.device.create_stream(options=StreamOptions(nonblocking=True))
        expected = graph.compute(inputs, graph.weights)
        specs_in = [spec(name, array) for name, array in zip(graph.names, inputs, strict=True)]
        specs_out = [spec(name, array) for name, array in zip(graph.outputs, expected, strict=True)]
        padding = Padding(
            ("row",) * len(inputs), ("row",) * len(expected), {"row": Buckets((4, 16, 64))}
        )
        self.graph = graph
        self.plan = TwinPlan(twins, graph.layout, graph.compute)
        self.engine = GpuEngine(
            [GpuGraph(self.device, self.plan)],
            [self.upload(graph.weights)],
            GraphWay(tuple(specs_in), tuple(specs_out), padding, RunnerSettings()),
            CaptureGate(),
        )

    def upload(self, weights: Sequence[Array]) -> DeviceWeights:
        return DeviceWeights(self.graph.layout, weights, self.device, self.uploads)

    def close(self) -> None:
        self.engine.close()
        self.uploads.close()


def spec(name: str, array: Array) -> TensorSpec:
    return TensorSpec(name, DATATYPES[array.dtype.str[1:]], (-1, *array.shape[1:]))  # type: ignore[arg-type]  # one of the datatypes


def doubled(weights: Sequence[Array]) -> list[Array]:
    return [np.asarray(2 * weight, weight.dtype) for weight in weights]


def ask(binding: Any, inputs: Sequence[Array]) -> list[Array]:
    stage = binding.stage(tuple(array.shape for array in inputs))
    for staged, array in zip(stage.inputs, inputs, strict=True):
        staged[...] = array
    stage.enqueue()
    return [array.copy() for array in stage.outputs()]


@pytest.fixture(params=MODELS, ids=lambda model: model.name)
def model(request: pytest.FixtureRequest) -> CorpusModel:
    model: CorpusModel = request.param
    return model


def test_real_graphs_answer_as_their_twins(
    stub: CudaStub, twins: Twins, model: CorpusModel
) -> None:
    graph = OnDevice.of(open_model(model.folder / "model.onnx"))
    one, other = ([batch[name] for name in graph.names] for batch in model.batches())
    served = Served(twins, graph, one)
    binding = served.engine.bind()

    for _ in range(2):  # by turns
        for inputs in (one, other):
            expected = graph.compute(inputs, graph.weights)
            for found, right in zip(ask(binding, inputs), expected, strict=True):
                assert found.shape == right.shape
                if right.dtype.kind == "f":
                    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
                else:
                    np.testing.assert_array_equal(found, right)
    first = ask(binding, one)
    ask(binding, other)
    for found, right in zip(ask(binding, one), first, strict=True):
        assert found.tobytes() == right.tobytes()

    changed = served.engine.reweighted([served.upload(doubled(graph.weights))])
    rebound = changed.bind_like(binding)
    expected = graph.compute(one, doubled(graph.weights))
    for found, right in zip(ask(rebound, one), expected, strict=True):
        if right.dtype.kind == "f":
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
    for bound in (binding, rebound):
        bound.close()
    changed.close()
    served.close()
    assert twins.failed == []


def test_no_answer_is_torn_by_updates_of_weights(stub: CudaStub, twins: Twins) -> None:
    """10^5 updates under four executors: each answer is of one version alone."""
    layout = BlockLayout.of([("w", np.dtype(np.float32), (256,))])

    def compute(inputs: Sequence[Array], weights: Sequence[Array]) -> list[Array]:
        return [np.stack([weights[0].min(), weights[0].max()])[None, :] + inputs[0]]

    device = Device(0)
    uploads = device.create_stream(options=StreamOptions(nonblocking=True))
    versions = [
        DeviceWeights(layout, [np.full(256, number, np.float32)], device, uploads)
        for number in range(4)
    ]
    plan = TwinPlan(twins, layout, compute)
    base = GpuEngine(
        [GpuGraph(device, plan)],
        [versions[0]],
        GraphWay(
            (TensorSpec("x", "FP32", (1, 2)),),
            (TensorSpec("y", "FP32", (1, 2)),),
            Padding((None,), (None,), {}),
            RunnerSettings(),
        ),
        CaptureGate(),
    )
    engines = [base, *(base.reweighted([one]) for one in versions[1:])]
    torn: list[object] = []

    def serve(number: int) -> None:
        Device(0).set_current()
        first = base.bind()
        bindings = [first, *(engine.bind_like(first) for engine in engines[1:])]
        x = np.zeros((1, 2), np.float32)
        for update in range(UPDATES):
            version = (update + number) % len(bindings)
            (found,) = ask(bindings[version], [x])
            if not (found == version).all():
                torn.append((number, update, found.tolist()))
        for binding in bindings:
            binding.close()

    on_threads(4, serve)
    for engine in engines:
        engine.close()
    uploads.close()
    assert torn == []
    assert twins.failed == []
