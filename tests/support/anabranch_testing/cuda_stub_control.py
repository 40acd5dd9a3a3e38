"""What a test does to the stub driver of its process, and asks of it.

Only in a process that anabranch_testing.cuda_stub started.
"""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch_testing.cuda_stub import Mode

__all__ = ["CudaStub", "LiveCounts", "Parameter", "floats_at"]

Parameter = type[ctypes.c_void_p] | type[ctypes.c_float] | type[ctypes.c_int]

_TwinFunction: Final = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_uint),
    ctypes.POINTER(ctypes.c_void_p),
)


@dataclass(frozen=True, slots=True)
class LiveCounts:
    """Everything that is live: objects by kind, operations that wait to run, bytes by kind.

    The order of the fields is that of `CudaStubCounts` in control.h.
    """

    contexts: int
    streams: int
    events: int
    captures: int
    graphs: int
    execs: int
    libraries: int
    pools: int
    user_objects: int
    pending_operations: int
    device_bytes: int
    device_pool_bytes: int
    pinned_bytes: int
    pinned_pool_bytes: int
    managed_bytes: int
    registered_bytes: int


class _Counts(ctypes.Structure):
    _fields_ = [(field.name, ctypes.c_uint64) for field in fields(LiveCounts)]


class CudaStub:
    """The stub driver of this process. Every method may be called from any thread.

    Raises:
        OSError: the driver of this process is no stub.
    """

    def __init__(self) -> None:
        if "ANABRANCH_CUDA_STUB_MODE" not in os.environ:
            raise OSError("the driver of this process is no stub: see anabranch_testing.cuda_stub")
        self._library = ctypes.CDLL("libcuda.so.1")
        self._library.cuda_stub_trace.restype = ctypes.c_size_t
        self._library.cuda_stub_calls.restype = ctypes.c_uint64
        self._twins: list[object] = []

    def set_mode(self, mode: Mode) -> None:
        """Run what waits to run, and from now on as late as is legal, or within each call."""
        self._library.cuda_stub_set_lazy(int(mode == "lazy"))

    def drain(self) -> None:
        """Run everything that waits to run."""
        self._library.cuda_stub_drain()

    def set_memory(self, memory_bytes: int) -> None:
        """Set what every device has; what is live beyond it stays."""
        self._library.cuda_stub_set_memory(ctypes.c_size_t(memory_bytes))

    def fail(
        self,
        error: int,
        entry_point: str = "",
        *,
        nth: int = 1,
        times: int = 1,
        sticky: bool = False,
    ) -> None:
        """Let calls fail.

        Args:
            error: CUresult that they answer.
            entry_point: without suffix of a version; "" for any.
            nth: the first one of them; 1 is the next call.
            times: how many, from then on.
            sticky: the device is lost at the first of them.
        """
        self._library.cuda_stub_fail(
            entry_point.encode(), ctypes.c_uint64(nth), ctypes.c_uint64(times), error, int(sticky)
        )

    def clear_faults(self) -> None:
        """Take back every `fail` that has not happened."""
        self._library.cuda_stub_clear_faults()

    def calls(self, entry_point: str = "") -> int:
        """Return how often an entry point was called, "" for all of them together."""
        return int(self._library.cuda_stub_calls(entry_point.encode()))

    def lose(self, error: int) -> None:
        """Lose the devices: `error` is what they answer from now on."""
        self._library.cuda_stub_set_lost(error)

    def restore(self) -> None:
        """Bring lost devices back, as no real driver does."""
        self._library.cuda_stub_set_lost(0)

    def lost(self) -> int:
        """Return what lost devices answer, 0 where they are not lost."""
        return int(self._library.cuda_stub_lost())

    def counts(self) -> LiveCounts:
        """Return what is live."""
        counts = _Counts()
        self._library.cuda_stub_counts(ctypes.byref(counts))
        return LiveCounts(*(getattr(counts, field.name) for field in fields(LiveCounts)))

    def trace(self) -> list[str]:
        """Return what happened, the oldest first: calls with what came of them, and runs."""
        capacity = 0
        while True:
            text = ctypes.create_string_buffer(capacity)
            needed = int(self._library.cuda_stub_trace(text, ctypes.c_size_t(capacity)))
            if needed <= capacity:
                return text.value.decode().splitlines()
            capacity = needed

    def clear_trace(self) -> None:
        """Forget what happened."""
        self._library.cuda_stub_clear_trace()

    def register(self, name: str, twin: Callable[..., None], *parameters: Parameter) -> None:
        """Register a twin: what runs instead of a kernel of that name.

        It runs on the thread that forces the launch to run, and must not call the driver.

        Args:
            name: of the kernel, mangled where its code is.
            twin: called with the arguments of the launch, pointers as integers.
            parameters: of the kernel.
        """

        def call(grid: Any, block: Any, arguments: Any) -> None:
            values = (
                ctypes.cast(arguments[place], ctypes.POINTER(parameter)).contents.value
                for place, parameter in enumerate(parameters)
            )
            twin(*values)

        function = _TwinFunction(call)
        self._twins.append(function)
        sizes = (ctypes.c_size_t * len(parameters))(*map(ctypes.sizeof, parameters))
        self._library.cuda_stub_register_kernel(
            name.encode(), function, ctypes.c_size_t(len(parameters)), sizes
        )


def floats_at(pointer: int, count: int) -> NDArray[np.float32]:
    """Return a view of memory, `(count,)` float32; whoever owns it keeps it alive."""
    floats = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(floats, (count,))
