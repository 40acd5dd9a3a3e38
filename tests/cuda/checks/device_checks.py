"""Two devices of the stub."""

import pytest
from cuda.bindings import driver
from cuda.core import Device

from anabranch_testing.cuda_executors import plain_stream
from anabranch_testing.cuda_stub_control import CudaStub


@pytest.fixture
def second(device: Device) -> Device:
    second = Device(1)
    second.set_current()  # retains its context, for as long as the process lives
    device.set_current()
    return second


def test_devices_have_streams_and_memory_of_their_own(
    second: Device, stub: CudaStub, device: Device
) -> None:
    second.set_current()
    assert second.uuid != device.uuid
    stream = plain_stream(second)
    assert stream.device.device_id == 1
    _, free, _ = driver.cuMemGetInfo()
    buffer = second.allocate(4096, stream=stream)
    assert driver.cuMemGetInfo()[1] == free - 4096
    device.set_current()
    assert driver.cuMemGetInfo()[1] == driver.cuMemGetInfo()[2]
    second.set_current()
    buffer.close(stream)
    stream.sync()
    stream.close()
    device.set_current()


def test_there_is_no_third_device() -> None:
    assert driver.cuDeviceGet(2)[0] == driver.CUresult.CUDA_ERROR_INVALID_DEVICE
    assert driver.cuDeviceGetCount()[1] == 2
