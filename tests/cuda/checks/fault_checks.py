"""Faults on the stub: calls that fail, devices that are lost, entry points that are missing."""

import pytest
from cuda.bindings import driver
from cuda.core import Device, Kernel, Stream

from anabranch_testing.cuda_executors import AffineExecutor
from anabranch_testing.cuda_fixtures import left_behind, nothing_left
from anabranch_testing.cuda_stub_control import CudaStub

OUT_OF_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
LAUNCH_FAILED = driver.CUresult.CUDA_ERROR_LAUNCH_FAILED
SUCCESS = driver.CUresult.CUDA_SUCCESS


def test_the_nth_call_of_an_entry_point_fails(stub: CudaStub, stream: Stream) -> None:
    stub.fail(OUT_OF_MEMORY, "cuStreamQuery", nth=2, times=2)
    errors = [driver.cuStreamQuery(stream.handle)[0] for _ in range(4)]
    assert errors == [SUCCESS, OUT_OF_MEMORY, OUT_OF_MEMORY, SUCCESS]


def test_the_nth_call_of_all_fails(stub: CudaStub, stream: Stream) -> None:
    before = stub.calls()
    stub.fail(OUT_OF_MEMORY, nth=3)
    assert driver.cuStreamQuery(stream.handle)[0] == SUCCESS
    assert driver.cuMemGetInfo()[0] == SUCCESS
    assert driver.cuStreamSynchronize(stream.handle)[0] == OUT_OF_MEMORY
    assert driver.cuStreamSynchronize(stream.handle)[0] == SUCCESS
    assert stub.calls() == before + 4
    assert stub.calls("cuStreamSynchronize") >= 2


def test_a_lost_device_answers_nothing_else(stub: CudaStub, stream: Stream) -> None:
    stub.fail(LAUNCH_FAILED, "cuStreamQuery", sticky=True)
    assert driver.cuStreamQuery(stream.handle)[0] == LAUNCH_FAILED
    assert driver.cuStreamSynchronize(stream.handle)[0] == LAUNCH_FAILED
    assert driver.cuMemAlloc(64)[0] == LAUNCH_FAILED
    assert stub.lost() == LAUNCH_FAILED
    stub.restore()
    assert driver.cuStreamSynchronize(stream.handle)[0] == SUCCESS


def test_what_frees_does_so_even_where_it_fails(stub: CudaStub) -> None:
    _, memory = driver.cuMemAlloc(64)
    stub.lose(LAUNCH_FAILED)
    assert driver.cuMemFree(memory)[0] == LAUNCH_FAILED
    assert stub.counts().device_bytes == 0


def test_an_entry_point_that_is_not_there_says_its_name(stub: CudaStub) -> None:
    assert driver.cuMemAllocPitch(64, 4, 4)[0] == driver.CUresult.CUDA_ERROR_NOT_SUPPORTED
    assert "cuMemAllocPitch unimplemented -> 801" in stub.trace()


def test_the_trace_tells_calls_and_runs_apart(stub: CudaStub, stream: Stream) -> None:
    stub.set_mode("lazy")
    stub.clear_trace()
    event = stream.record()
    event.sync()
    lines = stub.trace()
    record = next(at for at, line in enumerate(lines) if line.startswith("cuEventRecord stream="))
    run = next(at for at, line in enumerate(lines) if line.startswith("run stream="))
    assert record < run < lines.index("cuEventSynchronize")
    stub.clear_trace()
    assert stub.trace() == []


def serve(device: Device, kernel: Kernel) -> list[float]:
    """Do what an executor does in its life, and return what it answered."""
    executor = AffineExecutor(device, kernel)
    answers = []
    try:
        for version in (1.0, 2.0):
            executor.update(version, version)
            executor.launch(3.0)
            answers.append(float(executor.wait()[0]))
    finally:
        executor.close()
    return answers


@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for ever"])
def test_a_fault_at_any_call_is_an_error_and_leaves_nothing_behind(
    loaded_stub: CudaStub, device: Device, kernel: Kernel, sticky: bool
) -> None:
    stub = loaded_stub
    right = [1.0 * 3 + 1, 2.0 * 3 + 2]
    assert serve(device, kernel) == right
    before = left_behind(stub)
    first = stub.calls()
    assert serve(device, kernel) == right
    calls = stub.calls() - first
    assert calls > 40
    for nth in range(1, calls + 1):
        stub.clear_trace()
        stub.fail(LAUNCH_FAILED, nth=nth, sticky=sticky)
        failed = ""
        try:
            answers = serve(device, kernel)
        except Exception as error:
            failed = str(error)
        if not failed:
            assert answers == right, (nth, stub.trace())
        before = nothing_left(stub, before, (nth, failed))
