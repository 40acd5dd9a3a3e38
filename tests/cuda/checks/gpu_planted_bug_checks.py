"""Bugs planted in what runs graphs on streams: each shows every time, in the mode made for it."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
from cuda.core import Buffer, Device, Stream

from anabranch_runtime.backends.gpu.blocks import BlockLayout
from anabranch_runtime.backends.gpu.engines import GpuStage
from anabranch_runtime.backends.gpu.memory import PinnedBlock
from anabranch_runtime.backends.gpu.runners import GraphRunner, RunnerSettings
from anabranch_runtime.backends.gpu.slots import Slot
from anabranch_runtime.backends.gpu.transfers import SeparateTransfers, StreamsMode
from anabranch_runtime.backends.gpu.weights import DeviceWeights, ExecutorWeights
from anabranch_testing.cuda_fixtures import left_behind
from anabranch_testing.cuda_stub import Mode
from anabranch_testing.cuda_stub_control import CudaStub
from anabranch_testing.cuda_twins import Twins
from anabranch_testing.gpu_models import COLUMNS, LinearModel

Patch = pytest.MonkeyPatch
REPEATS = 5


@pytest.fixture(scope="session")
def twins(loaded_stub: CudaStub) -> Twins:
    return Twins(loaded_stub)


def missing_wait(patch: Patch) -> None:
    """The stream that computes does not wait for the one that brings the inputs."""

    def bring(transfers: SeparateTransfers, source: Buffer, target: Buffer) -> None:
        source.copy_to(target, stream=transfers._in)

    patch.setattr(SeparateTransfers, "bring", bring)


def missing_wait_for_results(patch: Patch) -> None:
    """The stream that fetches the outputs does not wait for the one that computes them."""

    def fetch(transfers: SeparateTransfers, source: Buffer, target: Buffer, done: object) -> None:
        source.copy_to(target, stream=transfers._out)
        transfers._out.record(done)

    patch.setattr(SeparateTransfers, "fetch", fetch)


def results_read_early(patch: Patch) -> None:
    """Outputs are taken before the event that says they are there."""

    def wait(slot: Slot) -> None:
        slot.is_at_work = False

    patch.setattr(Slot, "wait", wait)


def staging_freed(patch: Patch) -> None:
    """Pinned inputs are freed while the copy out of them has not run."""
    launch = Slot.launch

    def freeing(slot: Slot) -> None:
        launch(slot)
        slot._pinned_in.close()

    patch.setattr(Slot, "launch", freeing)
    patch.setattr(PinnedBlock, "close", lambda block: block.buffer.close())


def rebound_after_capture(patch: Patch) -> None:
    """New weights lie in another block than the one that was captured."""

    def take(own: ExecutorWeights, weights: DeviceWeights) -> None:
        if own._held is None:
            weights.buffer.copy_to(own._buffer, stream=own._stream)
        own._held = weights

    patch.setattr(ExecutorWeights, "take", take)


def recycled_slot(patch: Patch) -> None:
    """A slot is filled for the next batch although the one before is at work."""
    enqueue = GpuStage.enqueue

    def twice(stage: GpuStage) -> None:
        enqueue(stage)
        stage.inputs[0][...] = 99  # the next batch

    patch.setattr(GpuStage, "enqueue", twice)


def weights_freed_early(patch: Patch) -> None:
    """A version's weights are freed while an executor's copy of them has not run."""

    def take(own: ExecutorWeights, weights: DeviceWeights) -> None:
        copy = Device(0).allocate(weights.buffer.size, stream=weights._stream)
        weights.buffer.copy_to(copy, stream=weights._stream)
        weights._stream.sync()
        copy.copy_to(own._buffer, stream=own._stream)
        copy.close(weights._stream)
        weights._stream.sync()

    patch.setattr(ExecutorWeights, "take", take)


BUGS: dict[Callable[[Patch], None], tuple[StreamsMode, set[Mode]]] = {
    missing_wait: ("separate", {"lazy"}),
    missing_wait_for_results: ("separate", {"lazy"}),
    results_read_early: ("merge", {"lazy"}),
    staging_freed: ("merge", {"lazy", "eager"}),
    rebound_after_capture: ("merge", {"lazy", "eager"}),
    recycled_slot: ("merge", {"lazy"}),
    weights_freed_early: ("merge", {"lazy"}),
}


def answers(twins: Twins, streams: StreamsMode) -> list[float]:
    """Answer batches of two versions by turns; NaN where a device is lost."""
    model = LinearModel(twins, RunnerSettings(streams=streams))
    engine = model.engine(1)
    other = engine.reweighted([model.weights(2)])
    binding = engine.bind()
    another = other.bind_like(binding)
    told: list[float] = []
    try:
        for number in range(4):
            for bound in (binding, another):
                stage = bound.stage(((2, COLUMNS), (1,)))
                stage.inputs[0][...] = number
                stage.inputs[1][...] = 0
                stage.enqueue()
                told += [float(value) for value in stage.outputs()[0]]
    except Exception:
        told.append(float("nan"))
    for one in (another, binding, other, engine, model):
        try:
            one.close()
        except Exception:
            told.append(float("nan"))
    return told


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_shows_every_time(
    loaded_stub: CudaStub,
    device: Device,
    twins: Twins,
    mode: Mode,
    monkeypatch: pytest.MonkeyPatch,
    bug: Callable[[Patch], None],
) -> None:
    streams, modes = BUGS[bug]
    right = [value for number in range(4) for value in (*[4.0 * number] * 2, *[8.0 * number] * 2)]
    shown = set()
    for _ in range(REPEATS):
        assert answers(twins, streams) == right
        with monkeypatch.context() as patch:
            bug(patch)
            shown.add(answers(twins, streams) != right)
        left_behind(loaded_stub)  # what the bug left to run may lose the device once more
        loaded_stub.restore()
    assert shown == {mode in modes}


def test_weights_larger_than_what_is_uploaded_at_once_come_whole(
    stub: CudaStub, device: Device, stream: Stream
) -> None:
    random = np.random.default_rng(1)
    arrays = [
        random.normal(size=shape).astype(np.float32)
        for shape in ((1 << 19, 3), (7,), (0, 4), (1 << 18,))
    ]
    layout = BlockLayout.of([(str(i), a.dtype, a.shape) for i, a in enumerate(arrays)])
    weights = DeviceWeights(layout, arrays, device, stream)
    back = PinnedBlock(layout)
    weights.buffer.copy_to(back.buffer, stream=stream)
    stream.sync()
    for array, found in zip(arrays, back.arrays, strict=True):
        assert found.tobytes() == array.tobytes()
    weights.close()
    stream.sync()
    back.close()


def test_a_runner_belongs_to_the_thread_that_opened_it(stub: CudaStub, twins: Twins) -> None:
    model = LinearModel(twins)
    engine = model.engine(1)
    binding = engine.bind()
    binding.stage(((1, COLUMNS), (1,)))
    errors: list[BaseException] = []

    def use() -> None:
        try:
            binding.stage(((2, COLUMNS), (1,)))
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert [str(error) for error in errors] == ["a runner belongs to one thread"]
    assert isinstance(binding.runner, GraphRunner)
    binding.close()
    engine.close()
    model.close()
