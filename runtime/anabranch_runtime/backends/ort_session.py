"""The part of ONNX Runtime's Python interface that backends use, as types; it ships without any."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BindMemory",
    "BindOutput",
    "DeviceValue",
    "IoBinding",
    "NamedOutput",
    "NativeSession",
    "OrtSession",
]


class NamedOutput(Protocol):
    """An output of a graph."""

    name: str


class BindMemory(Protocol):
    """Ties an input or output to memory."""

    def __call__(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: type,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Tie it to `buffer_ptr`, which has to outlive the binding."""


class BindOutput(Protocol):
    """Ties an output to memory, or leaves that to the library."""

    def __call__(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: type | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Tie it to `buffer_ptr`, which has to outlive the binding."""


class DeviceValue(Protocol):
    """A value in memory of the library's."""

    def shape(self) -> list[int]:
        """Return its shape."""
        ...


class IoBinding(Protocol):
    """Memory that runs read from and write to."""

    _iobinding: object
    bind_input: BindMemory
    bind_output: BindOutput

    def get_outputs(self) -> Sequence[DeviceValue]:
        """Return the outputs of the last run."""
        ...


class NativeSession(Protocol):
    """What an `InferenceSession` wraps."""

    def run_with_iobinding(self, iobinding: object, run_options: object) -> None:
        """Run on bound memory; of any thread, for a binding of its own."""


class OrtSession(Protocol):
    """`onnxruntime.InferenceSession`; running it is safe from any thread."""

    _sess: NativeSession

    def get_outputs(self) -> Sequence[NamedOutput]:
        """Return the outputs, in the graph's order."""
        ...

    def get_providers(self) -> list[str]:
        """Return what computes it, the first choice first."""
        ...

    def io_binding(self) -> IoBinding:
        """Return a binding that binds nothing yet."""
        ...

    def run(
        self,
        output_names: Sequence[str],
        input_feed: Mapping[str, NDArray[np.generic]],
        run_options: object = None,
    ) -> list[NDArray[np.generic]]:
        """Run on arrays and return new ones."""
        ...
