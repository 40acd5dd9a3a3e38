"""Fixtures of checks on the stub driver: a plugin of the pytest that `run_checks` starts."""

import gc
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest
from cuda.core import Device, Kernel, Stream

from anabranch_testing.cuda_executors import affine_kernel, plain_stream
from anabranch_testing.cuda_stub import Mode
from anabranch_testing.cuda_stub_control import CudaStub, LiveCounts

__all__ = [
    "device",
    "kernel",
    "left_behind",
    "loaded_stub",
    "mode",
    "nothing_left",
    "stream",
    "stub",
]

_MEMORY_BYTES = 1 << 30


@pytest.fixture(scope="session")
def mode() -> Mode:
    """The mode that the process was started in."""
    return cast("Mode", os.environ["ANABRANCH_CUDA_STUB_MODE"])


@pytest.fixture(scope="session")
def loaded_stub() -> CudaStub:
    """The stub, of which nobody looks whether the test left anything in it."""
    return CudaStub()


@pytest.fixture
def device(loaded_stub: CudaStub) -> Device:
    """The first device, current in the thread of the test."""
    device = Device(0)
    device.set_current()
    assert device.memory_resource is not None  # its first use must not come in a capture
    return device


@pytest.fixture
def kernel(loaded_stub: CudaStub, device: Device) -> Kernel:
    """The kernel `affine`."""
    return affine_kernel(loaded_stub)


@pytest.fixture
def stub(loaded_stub: CudaStub, device: Device, kernel: Kernel, mode: Mode) -> Iterator[CudaStub]:
    """The stub, as it is at its start; at the end, nothing may be left of what the test made."""
    gc.collect()
    loaded_stub.drain()
    before = _owned(loaded_stub)
    loaded_stub.clear_trace()
    yield loaded_stub
    loaded_stub.clear_faults()
    loaded_stub.restore()
    loaded_stub.set_mode(mode)
    loaded_stub.set_memory(_MEMORY_BYTES)
    gc.collect()
    loaded_stub.drain()
    assert _owned(loaded_stub) == before


@pytest.fixture
def stream(stub: CudaStub, device: Device) -> Iterator[Stream]:
    """A stream that does not wait for the default one."""
    stream = plain_stream(device)
    yield stream
    stream.close()


def left_behind(stub: CudaStub) -> LiveCounts:
    """Return what is live once faults are over and everything that waits has run."""
    stub.clear_faults()
    stub.restore()
    gc.collect()
    stub.drain()
    return stub.counts()


def nothing_left(stub: CudaStub, before: LiveCounts, about: object) -> LiveCounts:
    """Check that nothing is live but what was, and return what is.

    Args:
        stub: its faults are over.
        before: what was live.
        about: told where more is.
    """
    trace = stub.trace()
    left = left_behind(stub)
    if left != before and "cuStreamGetCaptureInfo -> 719" in trace:
        # cuda.core drops the graph of a capture that it could not ask about.
        assert left == replace(before, graphs=before.graphs + 1)
        return left
    assert left == before, (about, trace)
    return left


def _owned(stub: CudaStub) -> LiveCounts:
    """Return what is live, but for libraries: cuda.core keeps them as long as the process lives."""
    return replace(stub.counts(), libraries=0)
