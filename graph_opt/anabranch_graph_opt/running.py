"""Running a model from an analysis that must not know any backend.

The analyses of this package compare a model with itself or with a rewritten one. Whoever owns a
backend hands them a `ModelRunner`.
"""

import os
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "ModelRunner"]

Array = NDArray[np.generic]
"""A tensor of any datatype."""


class ModelRunner(Protocol):
    """Runs whole ONNX models on the CPU."""

    def run(
        self, model: str | os.PathLike[str] | bytes, inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return every output of `model` by name.

        The same path (or the same bytes object) is asked for many times in a row; an
        implementation keeps its last session. Inputs are not changed and may be reused by the
        caller; outputs belong to the caller.

        Args:
            model: a path to an ONNX file, or the bytes of one.
            inputs: one array for each input of the signature; `BYTES` inputs hold Python bytes.

        Raises:
            AnabranchError: the backend refuses the model, or fails on these inputs.
        """
        ...
