"""The contract suite: every dense backend passes it."""

import weakref
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anabranch_runtime.backends import DenseBackend, load_backend
from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_testing.graphs import lookup_model, scale_model, write_graph
from anabranch_wire.errors import AnabranchError, InvalidInput, Unsupported
from anabranch_wire.tensors import TensorSpec


@pytest.fixture(params=["ort-cpu"])
def backend(request: pytest.FixtureRequest) -> DenseBackend:
    return load_backend(request.param)


def test_stages_of_one_binding_hold_different_shapes(backend: DenseBackend, tmp_path: Path) -> None:
    engine = backend.build(scale_model(tmp_path))
    binding = engine.bind()

    for _ in range(3):
        for count in (1, 7, 2):
            stage = binding.stage(((count, 4),))
            x = np.arange(count * 4, dtype=np.float32).reshape(count, 4)
            stage.inputs[0][...] = x
            stage.enqueue()
            expected = x @ np.array([[1], [10], [100], [1000]], np.float32)
            np.testing.assert_array_equal(stage.outputs()[0], expected)
    binding.close()
    engine.close()


def test_staging_is_aligned(backend: DenseBackend, tmp_path: Path) -> None:
    binding = backend.build(scale_model(tmp_path)).bind()

    for count in (1, 3, 17):
        stage = binding.stage(((count, 4),))
        assert stage.inputs[0].ctypes.data % 64 == 0
        assert stage.inputs[0].flags.c_contiguous


def test_bindings_share_nothing(backend: DenseBackend, tmp_path: Path) -> None:
    engine = backend.build(scale_model(tmp_path))
    one, two = engine.bind().stage(((1, 4),)), engine.bind().stage(((1, 4),))
    for _ in range(2):
        one.inputs[0][...] = 1
        two.inputs[0][...] = 2
        one.enqueue()
        two.enqueue()

        assert one.outputs()[0][0, 0] == 1111
        assert two.outputs()[0][0, 0] == 2222


def test_an_id_out_of_range_is_the_callers_fault(backend: DenseBackend, tmp_path: Path) -> None:
    stage = backend.build(lookup_model(tmp_path)).bind().stage(((2,),))

    for _ in range(2):
        stage.inputs[0][...] = [1, 99]
        with pytest.raises(InvalidInput, match=r"Gather node\. Status Message: .*idx=99"):
            stage.enqueue()
        stage.inputs[0][...] = [1, 4]
        stage.enqueue()
        np.testing.assert_array_equal(stage.outputs()[0], [[1, 1.5], [4, 4.5]])


def test_negative_ids_count_from_the_end_as_onnx_has_it(
    backend: DenseBackend, tmp_path: Path
) -> None:
    stage = backend.build(lookup_model(tmp_path)).bind().stage(((2,),))

    stage.inputs[0][...] = [-1, -5]
    stage.enqueue()

    np.testing.assert_array_equal(stage.outputs()[0], [[4, 4.5], [0, 0.5]])


def test_output_shapes_that_depend_on_values(backend: DenseBackend, tmp_path: Path) -> None:
    path = write_graph(tmp_path, "nz (float[N] x) => (int64[1, M] y) { y = NonZero(x) }")
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1,)),),
        (TensorSpec("y", "INT64", (1, -1)),),
        RowLayout(False, 1, (0,), (None,), "NonZero"),
    )
    stage = backend.build(model).bind().stage(((3,),))

    for values in ([1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]):
        stage.inputs[0][...] = values
        stage.enqueue()
        np.testing.assert_array_equal(stage.outputs()[0], np.nonzero(np.array([values]))[1:])


def test_zero_rows(backend: DenseBackend, tmp_path: Path) -> None:
    stage = backend.build(scale_model(tmp_path)).bind().stage(((0, 4),))

    for _ in range(2):
        stage.enqueue()
        assert stage.outputs()[0].shape == (0, 1)


def test_text_tensors(backend: DenseBackend, tmp_path: Path) -> None:
    path = write_graph(tmp_path, "same (string[N] x) => (string[N] y) { y = Identity(x) }")
    spec = TensorSpec("x", "BYTES", (-1,))
    model = DenseModel(
        path, (spec,), (TensorSpec("y", "BYTES", (-1,)),), RowLayout(True, 1, (0,), (0,))
    )
    stage = backend.build(model).bind().stage(((2,),))

    stage.inputs[0][...] = [b"abc", "stra\u00dfe".encode()]
    stage.enqueue()
    assert stage.outputs()[0].tolist() == [b"abc", "stra\u00dfe".encode()]
    stage.inputs[0][...] = [b"\xff", b""]
    with pytest.raises(InvalidInput, match="UTF-8"):
        stage.enqueue()


def test_a_file_that_is_no_model_is_refused(backend: DenseBackend, tmp_path: Path) -> None:
    model = scale_model(tmp_path)
    model.path.write_bytes(b"no model at all")

    with pytest.raises(InvalidInput) as refused:
        backend.build(model)
    assert str(tmp_path) not in refused.value.message


def test_unknown_and_later_backends_say_so() -> None:
    with pytest.raises(InvalidInput, match="ort-cpu"):
        load_backend("ort_cpu")
    with pytest.raises(Unsupported, match="ort-cpu"):
        load_backend("tensorrt")


def test_the_runner_answers_every_output_by_name(tmp_path: Path) -> None:
    runner = OrtModelRunner()
    path = lookup_model(tmp_path / "a").path
    other = scale_model(tmp_path / "b").path

    first = runner.run(path, {"ids": np.array([3], np.int64)})
    second = runner.run(other, {"x": np.ones((1, 4), np.float32)})
    third = runner.run(path.read_bytes(), {"ids": np.array([1], np.int64)})

    assert first["y"].tolist() == [[3.0, 3.5]]
    assert second["y"].tolist() == [[1111.0]]
    assert third["y"].tolist() == [[1.0, 1.5]]
    with pytest.raises(AnabranchError):
        runner.run(path, {"ids": np.array([99], np.int64)})


def test_stages_kept_are_bounded_in_memory(tmp_path: Path) -> None:
    path = write_graph(tmp_path, "wide (float[N, 1024] x) => (float[N, 1024] y) { y = Relu(x) }")
    model = DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 1024)),),
        (TensorSpec("y", "FP32", (-1, 1024)),),
        RowLayout(True, 1, (0,), (0,)),
    )
    binding = OrtCpuBackend().build(model).bind()
    made: list[weakref.ref[NDArray[np.generic]]] = []

    for rows in range(2000, 2040):
        stage = binding.stage(((rows, 1024),))
        made.append(weakref.ref(stage.inputs[0]))
        stage.enqueue()

    kept = [array for ref in made if (array := ref()) is not None]
    assert binding.stage(((2039, 1024),)).inputs[0] is made[-1]()
    assert sum(array.nbytes for array in kept) <= 64 << 20
