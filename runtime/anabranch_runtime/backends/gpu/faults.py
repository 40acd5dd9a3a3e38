"""What a driver says when it fails, in our words, and whether its device can still be used."""

from typing import Final

from anabranch_wire.errors import AnabranchError, DeviceLost, Internal, Unavailable

__all__ = ["device_error"]

_MEMORY: Final = frozenset({"CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation"})

_PASSING: Final = frozenset(
    {
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_INVALID_HANDLE",
        "CUDA_ERROR_NOT_FOUND",
        "CUDA_ERROR_NOT_PERMITTED",
        "CUDA_ERROR_NOT_SUPPORTED",
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        "CUDA_ERROR_STREAM_CAPTURE_MERGE",
        "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        "CUDA_ERROR_CAPTURED_EVENT",
        "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
    }
)
"""Errors of one call alone. All others but those of memory leave a context that answers nothing
else any more (driver API, "This leaves the process in an inconsistent state"), or are not known to
be of one call."""


def device_error(error: BaseException, doing: str) -> AnabranchError:
    """Translate what a driver or a library on it raised.

    Args:
        error: of cuda.core, cuda.bindings or a library.
        doing: what it happened at, as in "while " + doing.

    Returns:
        `DeviceLost` where nothing on this device can be trusted any more, `Unavailable` where it
        had no memory, `Internal` where one call was refused; our own errors as they are.
    """
    if isinstance(error, AnabranchError):
        return error
    text = str(error)
    name = text.partition(":")[0].strip()
    if isinstance(error, MemoryError) or name in _MEMORY or "out of memory" in text.lower():
        return Unavailable(f"the GPU has no memory left while {doing}: {text[:300]}")
    if name in _PASSING:
        return Internal(f"the GPU's driver refused a call while {doing}: {text[:300]}")
    if name.startswith("CUDA_ERROR_"):
        return DeviceLost(f"the GPU was lost while {doing}: {text[:300]}")
    return Internal(f"{type(error).__name__} while {doing}: {text[:300]}")
