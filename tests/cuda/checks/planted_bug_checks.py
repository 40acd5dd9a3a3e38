"""Bugs that code on streams has, planted: each shows every time, in the mode that is made for it.

Each returns what the code with the bug, or without it, answers: another answer where it shows.
"""

from collections.abc import Callable

import pytest
from cuda.bindings import driver
from cuda.core import Device, Kernel

from anabranch_testing.cuda_executors import AffineExecutor, pinned_floats, plain_stream
from anabranch_testing.cuda_stub import Mode
from anabranch_testing.cuda_stub_control import CudaStub

Bug = Callable[[Device, Kernel, bool], list[float]]

REPEATS = 20


def missing_wait(device: Device, kernel: Kernel, planted: bool) -> list[float]:
    """A copy stream brings the input; the stream that computes has to wait for it."""
    executor = AffineExecutor(device, kernel)
    copies = plain_stream(device)
    source, x = pinned_floats(2)
    x[:] = 5, 7
    source.copy_to(executor.device_weights, stream=copies)
    if not planted:
        executor.stream.wait(copies.record())
    executor.launch(1.0)
    answers = [float(executor.wait()[0])]
    copies.sync()
    copies.close()
    executor.close()
    source.close()
    return answers


def missing_sync(device: Device, kernel: Kernel, planted: bool) -> list[float]:
    """Results are read before the event that says they are there."""
    executor = AffineExecutor(device, kernel)
    executor.update(1, 0)
    executor.launch(1.0)
    executor.wait()
    executor.launch(2.0)
    answers = [float(executor.out[0])] if planted else [float(executor.wait()[0])]
    executor.close()
    return answers


def staging_reused(device: Device, kernel: Kernel, planted: bool) -> list[float]:
    """The next batch is written into staging that the copy of this one still reads."""
    executor = AffineExecutor(device, kernel)
    executor.update(1, 0)
    executor.launch(1.0)
    if planted:
        executor.x[:] = 2
        answers = [float(executor.wait()[0])]
    else:
        answers = [float(executor.wait()[0])]
        executor.x[:] = 2
    executor.close()
    return answers


def staging_freed(device: Device, kernel: Kernel, planted: bool) -> list[float]:
    """Weights are brought through staging that is freed before the copy has run."""
    executor = AffineExecutor(device, kernel)
    staging, weights = pinned_floats(2)
    weights[:] = 2, 3
    staging.copy_to(executor.device_weights, stream=executor.stream)
    if planted:
        staging.close()
    executor.launch(1.0)
    error = driver.cuStreamSynchronize(executor.stream.handle)[0]
    answers = [float(executor.out[0])] if error == 0 else [float("nan")]
    staging.close()
    return answers + close_quietly(executor)


def rebound_after_capture(device: Device, kernel: Kernel, planted: bool) -> list[float]:
    """Inputs go to another buffer than the one that was captured."""
    executor = AffineExecutor(device, kernel)
    executor.update(1, 0)
    executor.launch(1.0)
    executor.wait()
    other, x = pinned_floats(64)
    x[:] = 2
    if planted:
        executor.graph.launch(executor.stream)
    else:
        executor.x[:] = x
        executor.graph.launch(executor.stream)
    executor.stream.sync()
    answers = [float(executor.out[0])]
    executor.close()
    other.close()
    return answers


def freed_after_capture(device: Device, kernel: Kernel, planted: bool) -> list[float]:
    """A buffer that was captured is freed; a replay still uses it."""
    executor = AffineExecutor(device, kernel)
    executor.update(1, 0)
    executor.stream.sync()
    if planted:
        executor.pinned_in.close()
        driver.cuGraphLaunch(executor.graph.handle, executor.stream.handle)
    else:
        executor.launch(1.0)
    error = driver.cuStreamSynchronize(executor.stream.handle)[0]
    answers = [float(executor.out[0])] if error == 0 else [float("nan")]
    return answers + close_quietly(executor)


def recycled_slot(device: Device, kernel: Kernel, planted: bool) -> list[float]:
    """Two slots of staging go round; a slot has to wait for the last copy out of it."""
    stream = plain_stream(device)
    slots = [pinned_floats(1) for _ in range(2)]
    copied = [device.create_event() for _ in slots]
    target, seen = pinned_floats(6)
    for batch in range(6):
        staging, view = slots[batch % 2]
        if batch >= 2 and not planted:
            copied[batch % 2].sync()
        view[:] = batch
        driver.cuMemcpyAsync(int(target.handle) + 4 * batch, int(staging.handle), 4, stream.handle)
        stream.record(copied[batch % 2])
    stream.sync()
    answers = [float(value) for value in seen]
    for buffer, _ in [*slots, (target, seen)]:
        buffer.close()
    stream.close()
    return answers


def results_overwritten(device: Device, kernel: Kernel, planted: bool) -> list[float]:
    """The next replay is launched before the results of this one were taken."""
    executor = AffineExecutor(device, kernel)
    executor.update(1, 0)
    executor.launch(1.0)
    executor.wait()
    if planted:
        executor.launch(2.0)
        answers = [float(executor.out[0])]
    else:
        answers = [float(executor.out[0])]
        executor.launch(2.0)
    executor.wait()
    executor.close()
    return answers


def close_quietly(executor: AffineExecutor) -> list[float]:
    """Close an executor whose device may be lost."""
    try:
        executor.close()
    except Exception as error:
        if "ILLEGAL_ADDRESS" not in str(error):
            raise
    return []


BUGS: dict[Bug, set[Mode]] = {
    missing_wait: {"lazy"},
    missing_sync: {"lazy"},
    staging_reused: {"lazy"},
    staging_freed: {"lazy"},
    rebound_after_capture: {"lazy", "eager"},
    freed_after_capture: {"lazy", "eager"},
    recycled_slot: {"lazy"},
    results_overwritten: {"eager"},
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_shows_every_time(
    stub: CudaStub, device: Device, kernel: Kernel, mode: Mode, bug: Bug
) -> None:
    shown = set()
    for _ in range(REPEATS):
        right = bug(device, kernel, False)
        assert bug(device, kernel, False) == right
        shown.add(bug(device, kernel, True) != right)
        stub.restore()
    assert shown == {mode in BUGS[bug]}
