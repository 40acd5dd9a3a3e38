"""Engines on the stub: buckets, captures, weights that change in the stream, threads."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import Device

from anabranch_runtime.backends.gpu.engines import GpuEngine
from anabranch_runtime.backends.gpu.gates import CaptureGate
from anabranch_runtime.backends.gpu.padding import Buckets
from anabranch_runtime.backends.gpu.runners import RunnerSettings
from anabranch_runtime.backends.gpu.transfers import StreamsMode
from anabranch_testing.cuda_fixtures import left_behind, nothing_left
from anabranch_testing.cuda_stub_control import CudaStub
from anabranch_testing.cuda_twins import Twins
from anabranch_testing.gpu_models import BUCKETS, COLUMNS, LinearModel, ask, on_threads
from anabranch_wire.errors import DeviceLost, Unavailable

STREAMS: tuple[StreamsMode, ...] = ("merge", "separate")


@pytest.fixture(scope="session")
def twins(loaded_stub: CudaStub) -> Twins:
    return Twins(loaded_stub)


@pytest.fixture(params=STREAMS)
def model(request: pytest.FixtureRequest, stub: CudaStub, twins: Twins) -> Iterator[LinearModel]:
    model = LinearModel(twins, RunnerSettings(streams=request.param))
    yield model
    model.close()
    assert twins.failed == []


def rows_of(count: int, first: float = 0.0) -> np.ndarray:
    return (np.arange(count * COLUMNS, dtype=np.float32) + np.float32(first)).reshape(-1, COLUMNS)


def test_batches_of_any_size_are_answered_row_by_row(model: LinearModel) -> None:
    engine = model.engine(3)
    binding = engine.bind()

    for count in (*range(1, 20), 33, 1, 16, 0, 5):
        x = rows_of(count, count)
        y, version = ask(binding, x, 0.5)
        np.testing.assert_array_equal(y, x @ np.full(COLUMNS, 3, np.float32) + np.float32(0.5))
        np.testing.assert_array_equal(version, np.full(count, 3))
    binding.close()
    engine.close()


def test_each_bucket_is_captured_once(model: LinearModel) -> None:
    engine = model.engine(1)
    binding = engine.bind()

    for count in (1, 2, 3, 4, 5, 16, 7, 1):
        ask(binding, rows_of(count))
    assert model.plan.captured == len(BUCKETS.sizes)
    ask(binding, rows_of(40))  # beyond the largest: runs as it is
    assert model.plan.captured == len(BUCKETS.sizes)
    binding.close()
    engine.close()


def test_rows_that_pad_are_those_of_the_batch_itself(stub: CudaStub, twins: Twins) -> None:
    def refusing(inputs: list[np.ndarray], weights: list[np.ndarray]) -> list[np.ndarray]:
        x = inputs[0]
        total = np.float32(np.nan) if (x < 0).any() else np.float32(0)
        return [x[:, 0] + total, x[:, 0]]

    model = LinearModel(twins, compute=refusing)
    engine = model.engine(1)
    binding = engine.bind()
    bad = -np.ones((16, COLUMNS), np.float32)
    assert np.isnan(ask(binding, bad)[0]).all()
    for count in (5, 0):
        good = np.ones((count, COLUMNS), np.float32)
        np.testing.assert_array_equal(ask(binding, good)[0], good[:, 0])
    binding.close()
    engine.close()
    model.close()


def test_shapes_by_turns_answer_to_the_same_bit(model: LinearModel) -> None:
    engine = model.engine(7)
    binding = engine.bind()
    shapes = [rows_of(count, count / 7) for count in (1, 4, 9, 16, 3)]

    first = [ask(binding, x)[0] for x in shapes]
    for _ in range(10):
        for x, expected in zip(shapes, first, strict=True):
            assert ask(binding, x)[0].tobytes() == expected.tobytes()
    binding.close()
    engine.close()


def test_a_graph_that_must_not_be_padded_runs_as_it_came(stub: CudaStub, twins: Twins) -> None:
    seen: set[int] = set()

    def count_rows(inputs: list[np.ndarray], weights: list[np.ndarray]) -> list[np.ndarray]:
        x = inputs[0]
        seen.add(len(x))
        return [np.full(len(x), len(x), np.float32), x[:, 0]]

    model = LinearModel(twins, buckets=None, compute=count_rows)
    engine = model.engine(1)
    binding = engine.bind()
    for count in (1, 3, 5, 3):
        np.testing.assert_array_equal(ask(binding, rows_of(count))[0], np.full(count, count))
    assert seen == {1, 3, 5}
    assert model.plan.captured == 0
    binding.close()
    engine.close()
    model.close()


def test_a_shape_that_comes_often_is_captured_too(stub: CudaStub, twins: Twins) -> None:
    model = LinearModel(twins, buckets=None)
    engine = model.engine(2)
    binding = engine.bind()
    x = rows_of(3)
    for _ in range(200):
        np.testing.assert_array_equal(ask(binding, x)[0], x @ np.full(COLUMNS, 2, np.float32))
    assert model.plan.captured == 1
    binding.close()
    engine.close()
    model.close()


def test_nothing_is_allocated_for_shapes_that_were_there(
    model: LinearModel, stub: CudaStub
) -> None:
    engine = model.engine(1)
    binding = engine.bind()
    for _ in range(2):
        for count in (1, 4, 16):
            ask(binding, rows_of(count))
    made = ("cuMemHostAlloc", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemAlloc")
    before = [stub.calls(name) for name in made]
    for _ in range(50):
        for count in (1, 3, 16):
            ask(binding, rows_of(count))
    assert [stub.calls(name) for name in made] == before
    binding.close()
    engine.close()


def test_slots_beyond_their_memory_go(stub: CudaStub, twins: Twins) -> None:
    model = LinearModel(twins, RunnerSettings(max_bytes=1 << 14), buckets=None)
    engine = model.engine(1)
    binding = engine.bind()
    for count in range(1, 200):
        ask(binding, rows_of(count))
    assert stub.counts().pinned_bytes < 1 << 16
    binding.close()
    engine.close()
    model.close()


def test_other_weights_are_taken_between_two_batches(model: LinearModel) -> None:
    engine = model.engine(1)
    binding = engine.bind()
    x = rows_of(5)
    ask(binding, x)
    captured = model.plan.captured
    for version in range(2, 20):
        other = engine.reweighted([model.weights(version)])
        another = other.bind_like(binding)
        for _ in range(2):
            assert (ask(another, x)[1] == version).all()
            assert (ask(binding, x)[1] == version - 1).all()
        binding.close()
        engine.close()
        engine, binding = other, another
    assert model.plan.captured == captured
    binding.close()
    engine.close()
    assert model.plan.is_closed


@pytest.mark.parametrize("streams", STREAMS)
def test_no_answer_is_torn_and_captures_disturb_nobody(
    stub: CudaStub, twins: Twins, streams: StreamsMode
) -> None:
    """Executors on their threads, of which some have yet to capture, and versions that change."""
    gate = CaptureGate()
    model = LinearModel(twins, RunnerSettings(streams=streams), gate)
    engines = [model.engine(1)]
    for version in range(2, 6):
        engines.append(engines[0].reweighted([model.weights(version)]))
    wrong: list[object] = []
    answered = [0] * 4

    def serve(number: int) -> None:
        Device(0).set_current()
        draws = random.Random(number)
        first = engines[0].bind()
        bindings = [first, *(engine.bind_like(first) for engine in engines[1:])]
        try:
            for _ in range(300):
                version = draws.randrange(len(bindings)) + 1
                x = rows_of(draws.randrange(1, 17), number)
                y, shown = ask(bindings[version - 1], x)
                if not (shown == version).all() or not (y == x.sum(1) * version).all():
                    wrong.append((number, version, shown))
                answered[number] += 1
        except BaseException as error:
            wrong.append(error)
        finally:
            for binding in bindings:
                binding.close()

    on_threads(4, serve)
    for engine in engines:
        engine.close()
    model.close()
    assert wrong == []
    assert twins.failed == []
    assert answered == [300] * 4


def test_a_lost_device_is_said_and_nothing_is_tried_on_it(
    model: LinearModel, stub: CudaStub
) -> None:
    engine = model.engine(1)
    binding = engine.bind()
    ask(binding, rows_of(4))
    stub.lose(driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    for _ in range(3):
        with pytest.raises(DeviceLost, match="ILLEGAL_ADDRESS"):
            ask(binding, rows_of(4))
    stub.restore()
    with pytest.raises(DeviceLost):
        ask(binding, rows_of(4))
    binding.close()
    engine.close()


def test_a_device_without_memory_is_unavailable_and_serves_on(
    model: LinearModel, stub: CudaStub
) -> None:
    engine = model.engine(1)
    binding = engine.bind()
    small = rows_of(4)
    ask(binding, small)
    stub.set_memory(1 << 12)
    with pytest.raises(Unavailable, match="memory"):
        ask(binding, rows_of(16 * 400))
    np.testing.assert_array_equal(ask(binding, small)[1], np.ones(4))
    stub.set_memory(1 << 30)
    assert (ask(binding, rows_of(16 * 400))[1] == 1).all()
    binding.close()
    engine.close()


def answers_of(twins: Twins, streams: StreamsMode) -> list[list[float]]:
    """Do what an executor does in its life: two shapes, two versions, one after the other."""
    opened: list[object] = []
    answers = []
    try:
        model = LinearModel(twins, RunnerSettings(streams=streams), buckets=Buckets((2,)))
        opened.append(model)
        engine = model.engine(1)
        opened.append(engine)
        binding = engine.bind()
        opened.append(binding)
        answers.append(ask(binding, rows_of(2))[0].tolist())
        other = engine.reweighted([model.weights(2)])
        opened.append(other)
        another = other.bind_like(binding)
        opened.append(another)
        answers.append(ask(another, rows_of(1))[0].tolist())
        answers.append(ask(binding, rows_of(3))[0].tolist())
    finally:
        for one in reversed(opened):
            one.close()  # type: ignore[attr-defined]  # each of them has it
    return answers


def test_binding_and_engine_close_in_any_order(stub: CudaStub, twins: Twins) -> None:
    model = LinearModel(twins)
    engine: GpuEngine = model.engine(1)
    other = engine.reweighted([model.weights(2)])
    binding = engine.bind()
    another = other.bind_like(binding)
    ask(another, rows_of(1))
    engine.close()
    binding.close()
    assert (ask(another, rows_of(2))[1] == 2).all()
    another.close()
    other.close()
    assert model.plan.is_closed
    model.close()


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("streams", STREAMS)
def test_a_fault_at_any_call_is_an_error_and_leaves_nothing_behind(
    loaded_stub: CudaStub, device: Device, twins: Twins, streams: StreamsMode, sticky: bool
) -> None:
    stub = loaded_stub
    right = answers_of(twins, streams)
    before = left_behind(stub)
    first = stub.calls()
    assert answers_of(twins, streams) == right
    calls = stub.calls() - first
    assert calls > 60
    for nth in range(1, calls + 1):
        stub.clear_trace()
        stub.fail(driver.CUresult.CUDA_ERROR_LAUNCH_FAILED, nth=nth, sticky=sticky)
        failed = ""
        try:
            answers = answers_of(twins, streams)
        except Exception as error:
            failed = str(error)
        if not failed:
            assert answers == right, (nth, stub.trace())
        before = nothing_left(stub, before, (nth, failed))
