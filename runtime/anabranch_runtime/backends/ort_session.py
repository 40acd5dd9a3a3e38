"""The part of ONNX Runtime's Python interface that backends use, as types; it ships without any."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["BindMemory", "IoBinding", "NamedOutput", "NativeSession", "OrtSession"]


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


class IoBinding(Protocol):
    """Memory that runs read from and write to."""

    _iobinding: object
    bind_input: BindMemory
    bind_output: BindMemory


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
