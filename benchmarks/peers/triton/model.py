"""The click model of the benchmarks inside Triton's Python backend: one ONNX Runtime session.

Requests that Triton hands over together are joined into one run, which is what its dynamic
batching is for.
"""

from __future__ import annotations  # the backend's types are not there yet when this is read

from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime

# Triton puts this module beside the script; no package has it.
import triton_python_backend_utils as triton  # type: ignore[import-not-found]  # pyright: ignore  # there in Triton alone
from numpy.typing import NDArray

__all__ = ["TritonPythonModel"]  # the name that Triton looks for


class TritonPythonModel:
    """Scores rows of `x` (N, 416) float32 to `score` (N, 1) float32."""

    def initialize(self, args: dict[str, str]) -> None:
        """Build the session with one thread and no spinning, as this project's executors do."""
        folder = Path(args["model_repository"]) / args["model_version"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            folder / "model.onnx", options, providers=["CPUExecutionProvider"]
        )

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """Answer `requests`, in their order."""
        rows = [triton.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        together = rows[0] if len(rows) == 1 else np.concatenate(rows)
        scores = cast(NDArray[np.float32], self._session.run(["score"], {"x": together})[0])
        ends = np.cumsum([len(part) for part in rows])
        return [
            triton.InferenceResponse([triton.Tensor("score", part)])
            for part in np.split(scores, ends[:-1])
        ]
