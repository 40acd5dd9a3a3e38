"""Streams and events on the stub: what runs when, and what waits for what."""

import ctypes
import time

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import Device, EventOptions, Stream, StreamOptions

from anabranch_testing.cuda_executors import pinned_floats, plain_stream
from anabranch_testing.cuda_stub import Mode
from anabranch_testing.cuda_stub_control import CudaStub

READY = driver.CUresult.CUDA_SUCCESS
NOT_READY = driver.CUresult.CUDA_ERROR_NOT_READY


def test_operations_run_when_they_are_forced_or_at_once(stream: Stream, mode: Mode) -> None:
    source, x = pinned_floats(4)
    target, y = pinned_floats(4)
    x[:], y[:] = 1, -1
    source.copy_to(target, stream=stream)
    assert y[0] == (-1 if mode == "lazy" else 1)
    stream.sync()
    assert y[0] == 1
    source.close()
    target.close()


def test_a_mode_can_be_changed(stub: CudaStub, stream: Stream) -> None:
    source, x = pinned_floats(4)
    target, y = pinned_floats(4)
    x[:], y[:] = 1, -1
    stub.set_mode("lazy")
    source.copy_to(target, stream=stream)
    assert y[0] == -1
    stub.set_mode("eager")
    assert y[0] == 1
    x[:] = 2
    source.copy_to(target, stream=stream)
    assert y[0] == 2
    source.close()
    target.close()


def test_syncing_one_stream_leaves_others_alone(device: Device, stream: Stream, mode: Mode) -> None:
    other = plain_stream(device)
    target, y = pinned_floats(4)
    y[:] = -1
    target.fill(b"\0", stream=other)
    stream.sync()
    assert y[0] == (-1 if mode == "lazy" else 0)
    assert driver.cuCtxSynchronize()[0] == READY
    assert y[0] == 0
    target.close()
    other.close()


def test_polling_an_event_gets_on(stub: CudaStub, stream: Stream) -> None:
    stub.set_mode("lazy")
    target, _ = pinned_floats(4)
    for value in range(3):
        target.fill(value, stream=stream)
    event = stream.record()
    polls = 0
    while not event.is_done:
        polls += 1
    assert polls == 4  # three fills, and the event itself
    assert driver.cuStreamQuery(stream.handle)[0] == READY
    target.close()


def test_a_stream_is_not_ready_while_something_waits(stub: CudaStub, stream: Stream) -> None:
    stub.set_mode("lazy")
    target, _ = pinned_floats(4)
    target.fill(1, stream=stream)
    assert driver.cuStreamQuery(stream.handle)[0] == NOT_READY
    assert driver.cuStreamQuery(stream.handle)[0] == READY
    target.close()


def test_waiting_for_an_event_that_was_never_recorded_is_nothing(
    device: Device, stream: Stream
) -> None:
    stream.wait(device.create_event())
    stream.sync()


def test_an_event_may_be_recorded_again_and_closed_while_it_is_waited_for(
    device: Device, stream: Stream, mode: Mode
) -> None:
    other = plain_stream(device)
    target, y = pinned_floats(4)
    y[:] = -1
    event = device.create_event()
    target.fill(b"\0", stream=stream)
    stream.record(event)
    other.wait(event)
    target.fill(b"\xff", stream=stream)
    stream.record(event)
    event.close()
    other.sync()
    assert (y[0] == 0) == (mode == "lazy")
    stream.sync()
    assert np.isnan(y[0])
    target.close()
    other.close()


def test_a_destroyed_stream_does_what_it_had_to_do(device: Device, stub: CudaStub) -> None:
    other = plain_stream(device)
    target, y = pinned_floats(4)
    y[:] = -1
    target.fill(b"\0", stream=other)
    other.close()
    assert driver.cuCtxSynchronize()[0] == READY
    assert y[0] == 0
    assert stub.counts().pending_operations == 0
    target.close()


def test_blocking_streams_and_the_default_stream_wait_for_each_other(device: Device) -> None:
    blocking = device.create_stream(options=StreamOptions(nonblocking=False))
    source, x = pinned_floats(4)
    between = device.allocate(16, stream=blocking)
    target, y = pinned_floats(4)
    x[:], y[:] = 1, -1
    source.copy_to(between, stream=blocking)
    between.copy_to(target, stream=device.default_stream)
    device.default_stream.sync()
    assert y[0] == 1
    x[:] = 2
    source.copy_to(between, stream=device.default_stream)
    between.copy_to(target, stream=blocking)
    blocking.sync()
    assert y[0] == 2
    between.close(blocking)
    blocking.sync()
    source.close()
    target.close()
    blocking.close()


def test_non_blocking_streams_do_not_wait_for_the_default_stream(
    device: Device, stream: Stream, mode: Mode
) -> None:
    target, y = pinned_floats(4)
    y[:] = -1
    target.fill(b"\0", stream=device.default_stream)
    stream.sync()
    assert y[0] == (-1 if mode == "lazy" else 0)
    assert driver.cuCtxSynchronize()[0] == READY
    target.close()


def test_pageable_memory_is_read_and_written_within_the_call(
    stub: CudaStub, device: Device, stream: Stream
) -> None:
    stub.set_mode("lazy")
    between = device.allocate(16, stream=stream)
    handle = int(between.handle)
    source = np.full(4, 7, np.float32)
    target = np.zeros(4, np.float32)
    assert driver.cuMemcpyHtoDAsync(handle, source.ctypes.data, 16, stream.handle)[0] == READY
    source[:] = 8
    assert driver.cuMemcpyDtoHAsync(target.ctypes.data, handle, 16, stream.handle)[0] == READY
    np.testing.assert_array_equal(target, np.full(4, 7, np.float32))
    between.close(stream)


def test_host_functions_run_in_their_place_and_may_not_call_the_driver(
    stub: CudaStub, stream: Stream
) -> None:
    target, y = pinned_floats(4)
    seen: list[object] = []

    def look(_: int | None) -> None:
        seen.append(float(y[0]))
        seen.append(driver.cuMemAlloc(64)[0])

    target.fill(b"\0", stream=stream)
    looking = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(look)
    address = ctypes.cast(looking, ctypes.c_void_p).value
    assert driver.cuLaunchHostFunc(stream.handle, driver.CUhostFn(address), 0)[0] == READY
    target.fill(b"\xff", stream=stream)
    stream.sync()
    assert seen == [0.0, driver.CUresult.CUDA_ERROR_NOT_PERMITTED]
    target.close()


def test_no_more_than_a_queue_waits(stub: CudaStub, stream: Stream) -> None:
    stub.set_mode("lazy")
    target, _ = pinned_floats(4)
    for _ in range(3000):
        target.fill(1, stream=stream)
    assert stub.counts().pending_operations == 1024
    stream.sync()
    target.close()


def test_timed_events_measure_when_operations_ran(device: Device, stream: Stream) -> None:
    timed = EventOptions(timing_enabled=True)
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(0.02))
    start = stream.record(options=timed)
    address = ctypes.cast(wait, ctypes.c_void_p).value
    driver.cuLaunchHostFunc(stream.handle, driver.CUhostFn(address), 0)
    end = stream.record(options=timed)
    end.sync()
    assert end - start >= 20.0
    plain = stream.record()
    stream.sync()
    with pytest.raises(RuntimeError, match="timing"):
        _ = plain - start


def test_streams_have_priorities_and_come_from_handles(device: Device, stream: Stream) -> None:
    urgent = device.create_stream(options=StreamOptions(priority=-1))
    assert urgent.priority == -1
    Stream.from_handle(int(stream.handle)).sync()
    urgent.close()


def test_handles_are_never_used_twice(device: Device) -> None:
    first = plain_stream(device)
    handle = int(first.handle)
    first.close()
    second = plain_stream(device)
    assert int(second.handle) != handle
    error = driver.cuStreamSynchronize(driver.CUstream(handle))[0]
    assert error == driver.CUresult.CUDA_ERROR_INVALID_HANDLE
    second.close()
