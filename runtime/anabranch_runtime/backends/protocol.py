"""The seam between executors and whatever runs a dense graph.

A backend builds an `Engine` from a model once per version. Every executor binds that engine once
and gets a `Binding` with staging memory of its own; nothing mutable is shared between bindings.
One batch is then three verbs on one thread: `stage` (fill the views), `enqueue`, `outputs`.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.models import DenseModel

__all__ = ["Binding", "DenseBackend", "Engine", "Stage"]

Shape = tuple[int, ...]


class Stage(Protocol):
    """Buffers of one combination of input shapes, bound to an engine.

    Valid until the binding is closed or makes another stage; used by one executor thread.

    Attributes:
        inputs: one writable, 64-byte aligned array per model input, to be filled before `enqueue`.
    """

    inputs: tuple[NDArray[np.generic], ...]

    def enqueue(self) -> None:
        """Start the graph on `inputs`.

        Raises:
            InvalidInput: the values or shapes cannot be computed, such as an id out of range.
            Internal: the backend failed.
        """

    def outputs(self) -> Sequence[NDArray[np.generic]]:
        """Wait for the batch and return one array per model output.

        The arrays may be views of staging memory: they are valid until the next `enqueue`, and
        whoever keeps an answer copies it.
        """
        ...


class Binding(Protocol):
    """One executor's hold on an engine. Used by one thread at a time."""

    def stage(self, shapes: tuple[Shape, ...]) -> Stage:
        """Return the stage for these input shapes, made on first use and kept while it is used."""
        ...

    def close(self) -> None:
        """Free the staging memory."""


class Engine(Protocol):
    """A built graph with its weights. `bind` may be called from any thread."""

    def bind(self) -> Binding:
        """Make the buffers of one more executor."""
        ...

    def close(self) -> None:
        """Free the graph; every binding has been closed before."""


class DenseBackend(Protocol):
    """Builds engines.

    Attributes:
        name: the name used in serving.yaml.
    """

    name: str

    def build(self, model: DenseModel, cancellation: Cancellation | None = None) -> Engine:
        """Load and optimise `model`.

        Args:
            model: what to build.
            cancellation: ends the build early where the backend can do that.

        Raises:
            InvalidInput: the graph cannot be built; the message says why.
            Cancelled: it was ended early.
            Unavailable: the backend's library or device is missing; the message says the remedy.
        """
        ...
