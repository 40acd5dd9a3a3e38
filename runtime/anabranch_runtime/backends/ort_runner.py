"""Runs a whole model once, for the checks that other packages make before a version may serve."""

import os
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.ort_library import (
    build_error,
    bytes_of,
    import_onnxruntime,
    run_error,
    texts_of,
)
from anabranch_runtime.backends.ort_session import OrtSession

__all__ = ["OrtModelRunner"]


class OrtModelRunner:
    """Runs models on ONNX Runtime's CPU provider, one thread; keeps the last session it made.

    Used by one thread at a time.

    Args:
        is_optimized: models are what the backend wrote itself, and run as they are.
    """

    def __init__(self, *, is_optimized: bool = False) -> None:
        self._is_optimized = is_optimized
        self._library = import_onnxruntime()
        self._model: str | os.PathLike[str] | bytes | None = None
        self._session: OrtSession | None = None

    def run(
        self, model: str | os.PathLike[str] | bytes, inputs: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, NDArray[np.generic]]:
        """Return every output of `model` for `inputs`, by name.

        Raises:
            InvalidInput: the graph cannot be built, or cannot compute these inputs.
        """
        session = self._session
        if session is None or self._model != model:
            session = self._session = self._open(model)
            self._model = model
        names = [output.name for output in session.get_outputs()]
        feed = {
            name: texts_of(name, array) if array.dtype == np.object_ else array
            for name, array in inputs.items()
        }
        try:
            values = session.run(names, feed)
        except Exception as error:  # the library has no common base for its errors
            raise run_error(error) from error
        return dict(zip(names, [bytes_of(value) for value in values], strict=True))

    def _open(self, model: str | os.PathLike[str] | bytes) -> OrtSession:
        options = self._library.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if self._is_optimized:
            level = self._library.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        source = model if isinstance(model, bytes) else str(model)
        try:
            session: OrtSession = self._library.InferenceSession(
                source, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise build_error(error) from error
        return session
