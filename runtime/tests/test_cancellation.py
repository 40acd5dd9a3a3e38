import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.settings import BatchSettings
from anabranch_testing.graphs import scale_model
from anabranch_testing.groups import Counts, open_groups
from anabranch_wire.errors import Cancelled
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec


def test_who_asks_calls_what_was_left_to_be_called() -> None:
    called: list[str] = []
    cancellation = Cancellation()
    cancellation.on_cancel(lambda: called.append("before"))
    cancellation.check()

    cancellation.cancel()
    cancellation.cancel()
    cancellation.on_cancel(lambda: called.append("after"))

    assert called == ["before", "after"]
    with pytest.raises(Cancelled):
        cancellation.check()


def test_a_build_that_nobody_wants_is_not_begun(tmp_path: Path) -> None:
    cancellation = Cancellation()
    cancellation.cancel()

    with pytest.raises(Cancelled):
        OrtCpuBackend().build(scale_model(tmp_path), cancellation)


def test_a_build_ends_early(tmp_path: Path) -> None:
    cancellation = Cancellation()
    begun = threading.Event()
    model = _large_model(tmp_path)

    class Watched(Cancellation):
        def on_cancel(self, call: Callable[[], object]) -> None:
            cancellation.on_cancel(call)
            begun.set()

        def check(self) -> None:
            cancellation.check()

    errors: list[Exception] = []

    def build() -> None:
        try:
            OrtCpuBackend().build(model, Watched())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=build)
    thread.start()
    assert begun.wait(20)
    cancellation.cancel()
    thread.join()

    assert isinstance(errors[0], Cancelled)


def test_a_load_that_is_cancelled_while_it_warms_keeps_nothing(tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    example = {"x": np.ones((2, 4), np.float32)}

    class AfterTheBuild(Cancellation):
        def on_cancel(self, call: Callable[[], object]) -> None:
            self.cancel()

    with open_groups(OrtCpuBackend(), Counts()) as make:
        group = make()
        with pytest.raises(Cancelled):
            group.load(Snapshot("m", 1), model, [example], cancellation=AfterTheBuild())
        assert group.free_unused() == 0


def test_a_load_that_is_cancelled_while_it_measures_keeps_nothing(tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    example = {"x": np.ones((2, 4), np.float32)}

    class AfterWarming(Cancellation):
        """Is asked for with the `at`-th look: one comes before each run."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.looks = 0
            self.at = at

        def check(self) -> None:
            self.looks += 1
            if self.looks == self.at:
                self.cancel()
            super().check()

    for at in (2, 3):  # with the first run of measuring, and in the middle
        with open_groups(OrtCpuBackend(), Counts()) as make:
            group = make(batching=BatchSettings())
            ending = AfterWarming(at)
            with pytest.raises(Cancelled):
                group.load(Snapshot("m", 1), model, [example], warm_rounds=1, cancellation=ending)
            # Measuring ends with the run that it is at; what follows looks once more.
            assert ending.looks <= at + 1
            assert group.free_unused() == 0


def _large_model(folder: Path) -> DenseModel:
    """A chain of Gemms whose packing takes some tens of milliseconds."""
    size, layers = 512, 40
    weights = [
        numpy_helper.from_array(np.full((size, size), 0.5, np.float32), f"w{index}")
        for index in range(layers)
    ]
    names = ["x", *(f"h{index}" for index in range(layers))]
    nodes = [
        helper.make_node("MatMul", [names[index], f"w{index}"], [names[index + 1]])
        for index in range(layers)
    ]
    rows = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", size])
    scores = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, ["N", size])
    graph = helper.make_graph(nodes, "large", [rows], [scores], weights)
    path = folder / "model.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    spec = TensorSpec("x", "FP32", (-1, size))
    return DenseModel(
        path,
        (spec,),
        (TensorSpec(names[-1], "FP32", (-1, size)),),
        RowLayout(True, 1, (0,), (0,)),
    )
