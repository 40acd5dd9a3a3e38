"""The installed ONNX Runtime: exactly one of its two distributions, and its errors in our words."""

import os
import re
from types import ModuleType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ort_distributions import check_distributions
from anabranch_wire.errors import AnabranchError, Internal, InvalidInput, Unavailable

__all__ = ["build_error", "bytes_of", "import_onnxruntime", "run_error", "texts_of"]

_STATUS: Final = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_PATHS: Final = re.compile(r"(?:/[\w.+-]+){2,}(?::\d+)?\s*")
_UNNAMED: Final = "Name:'' "
_MEMORY: Final = ("bad_alloc", "bad allocation", "Failed to allocate memory")


def import_onnxruntime() -> ModuleType:
    """Import ONNX Runtime, its telemetry off.

    Official builds send events to Microsoft and keep a device id in the user's cache folder unless
    the environment says otherwise before the first import (Privacy.md of onnxruntime 1.32).

    Both distributions own the same files, so with both installed the last one wins silently.

    Raises:
        Unavailable: none, or both, are installed; says what to install or remove.
    """
    check_distributions()
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise Unavailable(
            "ONNX Runtime is not installed: install anabranch with the extra [cpu] or [gpu]"
        ) from error
    return onnxruntime  # type: ignore[no-any-return]  # comes without types


def run_error(error: Exception) -> AnabranchError:
    """Translate what a run raised.

    A graph that was warmed runs; when it then fails, the caller's values or shapes are the reason
    (an id outside its table, lengths that do not fit), except when memory ran out.
    """
    text = library_text(error)
    if isinstance(error, MemoryError) or any(sign in text for sign in _MEMORY):
        return Internal(f"the model ran out of memory: {text[:300]}")
    return InvalidInput(f"the model cannot compute these inputs: {text[:600]}")


def texts_of(name: str, array: NDArray[np.generic]) -> NDArray[np.object_]:
    """`bytes` elements as the `str` that the library wants.

    Raises:
        InvalidInput: they are not UTF-8.
    """
    texts = np.empty(array.size, dtype=object)
    try:
        texts[:] = [value.decode() for value in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        raise InvalidInput(f"input {name!r}: expected UTF-8 text, got other bytes") from error
    return texts.reshape(array.shape)


def bytes_of(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """`str` elements, as the library answers, as `bytes`; other arrays unchanged."""
    if array.dtype != np.object_:
        return array
    encoded = np.empty(array.size, dtype=object)
    encoded[:] = [value.encode() for value in array.ravel().tolist()]
    return encoded.reshape(array.shape)


def library_text(error: Exception) -> str:
    """What the library said, without status prefixes, paths and the names of unnamed nodes."""
    text = _STATUS.sub("", str(error)).replace(_UNNAMED, "")
    return _PATHS.sub("", text).strip()


def build_error(error: Exception) -> InvalidInput:
    """Translate what building a session raised."""
    return InvalidInput(f"ONNX Runtime cannot build the graph: {library_text(error)[:600]}")
