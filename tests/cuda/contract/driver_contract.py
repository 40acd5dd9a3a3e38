"""What any CUDA driver does, the stub's and a real one: run on either, unchanged.

On a machine with a GPU: `python -m pytest tests/cuda/contract/driver_contract.py`.
"""

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import (
    Buffer,
    Device,
    EventOptions,
    LegacyPinnedMemoryResource,
    Stream,
    StreamOptions,
)
from cuda.core.graph import Graph, GraphBuilder
from numpy.typing import NDArray

COUNT = 4096


@pytest.fixture
def device() -> Device:
    device = Device(0)
    device.set_current()
    assert device.memory_resource is not None
    return device


@pytest.fixture
def stream(device: Device) -> Iterator[Stream]:
    stream = device.create_stream(options=StreamOptions(nonblocking=True))
    yield stream
    gc.collect()
    stream.close()


def pinned(value: float = 0.0) -> tuple[Buffer, NDArray[np.float32]]:
    buffer = LegacyPinnedMemoryResource().allocate(COUNT * 4)
    view = np.from_dlpack(buffer).view(np.float32)
    view[:] = value
    return buffer, view


def copying_graph(stream: Stream, source: Buffer, between: Buffer, target: Buffer) -> Graph:
    builder = stream.create_graph_builder().begin_building("thread_local")
    source.copy_to(between, stream=builder)
    between.copy_to(target, stream=builder)
    return builder.end_building().complete()


def test_copies_of_a_stream_follow_one_another(device: Device, stream: Stream) -> None:
    source, x = pinned()
    target, y = pinned()
    x[:] = np.arange(COUNT)
    between = device.allocate(COUNT * 4, stream=stream)
    source.copy_to(between, stream=stream)
    between.copy_to(target, stream=stream)
    stream.sync()
    np.testing.assert_array_equal(y, x)
    between.close(stream)


def test_an_event_orders_two_streams(device: Device, stream: Stream) -> None:
    other = device.create_stream(options=StreamOptions(nonblocking=True))
    source, _ = pinned(3.0)
    target, y = pinned()
    between = device.allocate(COUNT * 4, stream=stream)
    source.copy_to(between, stream=stream)
    other.wait(stream.record())
    between.copy_to(target, stream=other)
    other.sync()
    assert (y == 3.0).all()
    between.close(other)
    other.close()


def test_a_replay_reads_what_lies_in_its_buffers_then(device: Device, stream: Stream) -> None:
    source, x = pinned()
    target, y = pinned()
    between = device.allocate(COUNT * 4, stream=stream)
    graph = copying_graph(stream, source, between, target)
    for value in (1.0, 2.0, 3.0):
        x[:] = value
        graph.launch(stream)
        stream.sync()
        assert (y == value).all()
    graph.close()
    between.close(stream)


def test_an_updated_graph_has_the_new_operands(device: Device, stream: Stream) -> None:
    first, _ = pinned(1.0)
    second, _ = pinned(2.0)
    target, y = pinned()
    between = device.allocate(COUNT * 4, stream=stream)
    graph = copying_graph(stream, first, between, target)
    builder = stream.create_graph_builder().begin_building("thread_local")
    second.copy_to(between, stream=builder)
    between.copy_to(target, stream=builder)
    graph.update(builder.end_building())
    graph.launch(stream)
    stream.sync()
    assert (y == 2.0).all()
    graph.close()
    between.close(stream)


def test_split_branches_both_come_before_the_join(device: Device, stream: Stream) -> None:
    sources = [pinned(value)[0] for value in (5.0, 6.0)]
    targets = [pinned() for _ in sources]
    between = [device.allocate(COUNT * 4, stream=stream) for _ in sources]
    root = stream.create_graph_builder().begin_building("relaxed")
    branches = root.split(2)
    for branch, source, middle in zip(branches, sources, between, strict=True):
        source.copy_to(middle, stream=branch)
    joined = GraphBuilder.join(*branches)
    for middle, (target, _) in zip(between, targets, strict=True):
        middle.copy_to(target, stream=joined)
    graph = joined.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert [view[0] for _, view in targets] == [5.0, 6.0]
    graph.close()
    for buffer in between:
        buffer.close(stream)


def test_allocating_invalidates_a_global_capture_of_another_thread(
    device: Device, stream: Stream
) -> None:
    driver.cuStreamBeginCapture(
        stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    )
    errors: list[driver.CUresult] = []

    def allocate() -> None:
        device.set_current()
        errors.append(driver.cuMemAlloc(64)[0])

    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    assert errors == [driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED]
    error, _ = driver.cuStreamEndCapture(stream.handle)
    assert error == driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


def test_timed_events_tell_the_time_between_them(stream: Stream) -> None:
    start = stream.record(options=EventOptions(timing_enabled=True))
    end = stream.record(options=EventOptions(timing_enabled=True))
    end.sync()
    assert end.is_done
    assert end - start >= 0.0


def test_more_than_there_is_cannot_be_allocated(device: Device) -> None:
    _, free, total = driver.cuMemGetInfo()
    assert 0 < free <= total
    error, _ = driver.cuMemAlloc(total + (1 << 20))
    assert error == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
