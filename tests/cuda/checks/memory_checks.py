"""Memory on the stub: bounds, poison, what was freed, pools, and what there is."""

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    Kernel,
    LaunchConfig,
    ObjectCode,
    PinnedMemoryResource,
    Stream,
    launch,
)

from anabranch_testing.cuda_executors import pinned_floats
from anabranch_testing.cuda_stub_control import CudaStub, floats_at

SUCCESS = driver.CUresult.CUDA_SUCCESS
INVALID_VALUE = driver.CUresult.CUDA_ERROR_INVALID_VALUE
ILLEGAL_ADDRESS = driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
OUT_OF_MEMORY = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY


def bytes_at(address: int, count: int) -> bytes:
    return ctypes.string_at(address, count)


def test_fresh_and_freed_memory_is_poisoned(stub: CudaStub) -> None:
    error, address = driver.cuMemAllocHost(8)
    assert error == SUCCESS
    assert bytes_at(address, 8) == b"\xcd" * 8
    assert driver.cuMemFreeHost(address)[0] == SUCCESS
    assert bytes_at(address, 8) == b"\xdd" * 8


def test_an_operation_on_freed_memory_loses_the_device(
    stub: CudaStub, device: Device, stream: Stream
) -> None:
    stub.set_mode("lazy")
    target, _ = pinned_floats(4)
    target.fill(1, stream=stream)
    target.close()
    assert driver.cuStreamSynchronize(stream.handle)[0] == ILLEGAL_ADDRESS
    assert driver.cuMemAlloc(64)[0] == ILLEGAL_ADDRESS  # and everything after it
    assert stub.lost() == ILLEGAL_ADDRESS


def test_copies_stay_within_their_allocations(stub: CudaStub, stream: Stream) -> None:
    small, _ = pinned_floats(4)
    large, _ = pinned_floats(8)
    error = driver.cuMemcpyAsync(int(small.handle), int(large.handle), 32, stream.handle)[0]
    assert error == INVALID_VALUE
    error = driver.cuMemcpyAsync(int(large.handle) + 20, int(small.handle), 16, stream.handle)[0]
    assert error == INVALID_VALUE
    small.close()
    large.close()


def test_what_a_twin_writes_past_an_end_is_found_when_it_is_freed(
    stub: CudaStub, stream: Stream
) -> None:
    def overrun(out: int) -> None:
        floats_at(out, 5)[:] = 1

    stub.register("overrun", overrun, ctypes.c_void_p)
    kernel = ObjectCode.from_cubin(b"twin").get_kernel("overrun")
    target, _ = pinned_floats(4)
    launch(stream, LaunchConfig(grid=1, block=1), kernel, target)
    stream.sync()
    target.close()
    assert stub.lost() == ILLEGAL_ADDRESS


def test_memory_is_freed_once(stub: CudaStub, stream: Stream) -> None:
    error, address = driver.cuMemAlloc(64)
    assert error == SUCCESS
    assert driver.cuMemFree(int(address) + 4)[0] == INVALID_VALUE
    assert driver.cuMemFree(address)[0] == SUCCESS
    assert driver.cuMemFree(address)[0] == INVALID_VALUE


def test_memory_goes_when_its_freeing_has_run(
    stub: CudaStub, device: Device, stream: Stream
) -> None:
    stub.set_mode("lazy")
    before = stub.counts().device_pool_bytes
    buffer = device.allocate(1024, stream=stream)
    buffer.close(stream)
    assert stub.counts().device_pool_bytes == before + 1024
    stream.sync()
    assert stub.counts().device_pool_bytes == before


def test_a_device_has_only_so_much(stub: CudaStub, device: Device, stream: Stream) -> None:
    stub.set_memory(1 << 20)
    _, free, total = driver.cuMemGetInfo()
    assert total == 1 << 20
    buffer = device.allocate(free - 1024, stream=stream)
    assert driver.cuMemGetInfo()[1] == 1024
    assert driver.cuMemAlloc(1025)[0] == OUT_OF_MEMORY
    with pytest.raises(Exception, match="OUT_OF_MEMORY"):
        device.allocate(1025, stream=stream)
    pinned, _ = pinned_floats(1 << 19)  # memory of the host is no part of it
    pinned.close()
    buffer.close(stream)
    stream.sync()
    assert driver.cuMemGetInfo()[1] == free


def test_a_pool_has_a_bound_of_its_own(stub: CudaStub, device: Device, stream: Stream) -> None:
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=4096))
    assert stub.counts().pools == 1
    buffer = pool.allocate(4000, stream=stream)
    assert pool.attributes.used_mem_current == 4000
    with pytest.raises(Exception, match="OUT_OF_MEMORY"):
        pool.allocate(1000, stream=stream)
    buffer.close(stream)
    stream.sync()
    assert pool.attributes.used_mem_current == 0
    assert pool.attributes.used_mem_high == 4000
    pool.close()


def test_pinned_memory_comes_from_a_pool_too(
    stub: CudaStub, device: Device, stream: Stream
) -> None:
    pool = PinnedMemoryResource()
    buffer = pool.allocate(64, stream=stream)
    assert buffer.is_host_accessible
    assert stub.counts().pinned_pool_bytes == 64
    buffer.close(stream)
    stream.sync()
    pool.close()


def test_memory_of_the_process_can_be_registered(stub: CudaStub, stream: Stream) -> None:
    rows = np.arange(4, dtype=np.float32)
    assert driver.cuMemHostRegister(rows.ctypes.data, rows.nbytes, 0)[0] == SUCCESS
    assert stub.counts().registered_bytes == 16
    again = driver.cuMemHostRegister(rows.ctypes.data, rows.nbytes, 0)[0]
    assert again == driver.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    target, y = pinned_floats(4)
    driver.cuMemcpyAsync(int(target.handle), rows.ctypes.data, 16, stream.handle)
    stream.sync()
    np.testing.assert_array_equal(y, rows)
    assert driver.cuMemHostUnregister(rows.ctypes.data)[0] == SUCCESS
    target.close()


def test_arguments_of_kernels_may_not_point_to_freed_memory(
    stub: CudaStub, stream: Stream, kernel: Kernel
) -> None:
    stub.set_mode("lazy")
    buffers = [pinned_floats(64)[0] for _ in range(3)]
    launch(stream, LaunchConfig(grid=1, block=64), kernel, *buffers)
    for buffer in buffers:
        buffer.close()
    assert driver.cuStreamSynchronize(stream.handle)[0] == ILLEGAL_ADDRESS


def test_a_kernel_without_a_twin_is_not_found(stub: CudaStub) -> None:
    with pytest.raises(Exception, match="NOT_FOUND"):
        ObjectCode.from_cubin(b"twin").get_kernel("nobody")
