"""Writes a graph as ONNX Runtime would run it, once, for every process that will run it.

The file pair has the optimised graph and its weights, raw and packed for this processor's kernels.
A session built from it skips optimisation and packing and maps the weights, so that workers share
their memory and a build costs less than half the CPU time. Answers are those of the original to the
last bit, because it is what a session would have made of it.
"""

import errno
from pathlib import Path
from typing import Final

from anabranch_runtime.backends.ort_library import build_error, import_onnxruntime
from anabranch_wire.errors import Unavailable

__all__ = ["GRAPH_FILE", "WEIGHTS_FILE", "library_version", "write_optimized"]

GRAPH_FILE: Final = "model.onnx"
WEIGHTS_FILE: Final = "weights.bin"

_SMALL: Final = "1024"
"""Bytes up to which weights stay in the graph file: mapping pays by the page."""


def library_version() -> str:
    """Return the version of ONNX Runtime; what one version wrote, another may not read."""
    return str(import_onnxruntime().__version__)


def write_optimized(source: Path, folder: Path) -> Path:
    """Write the optimised form of `source` into `folder` and return the graph file.

    Builds a session, with the time and memory that takes. Only this processor's kernels read the
    packed weights.

    Args:
        source: an ONNX file.
        folder: an empty folder.

    Raises:
        InvalidInput: the graph cannot be built.
        Unavailable: the files cannot be written.
    """
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / GRAPH_FILE)
    for key, value in (
        ("session.optimized_model_external_initializers_file_name", WEIGHTS_FILE),
        ("session.optimized_model_external_initializers_min_size_in_bytes", _SMALL),
        ("session.save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(key, value)
    try:
        ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    except OSError as error:
        raise Unavailable(f"the optimised graph cannot be written: {error.strerror}") from None
    except Exception as error:  # the library has no common base for its errors
        if f"error code {errno.ENOSPC}" in str(error) or "No space left" in str(error):
            raise Unavailable("the optimised graph cannot be written: no space left") from None
        raise build_error(error) from error
    graph = folder / GRAPH_FILE
    if not graph.is_file():
        # Options inside the model file may come in place of ours (ORT_LOAD_CONFIG_FROM_MODEL).
        raise Unavailable("ONNX Runtime wrote no optimised graph")
    return graph
