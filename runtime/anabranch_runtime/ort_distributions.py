"""Which distributions of ONNX Runtime are installed; nothing is imported to find out."""

from importlib import metadata
from typing import Final

from anabranch_wire.errors import Unavailable

__all__ = ["check_distributions"]

_CPU: Final = "onnxruntime"
_GPU: Final = "onnxruntime-gpu"


def check_distributions() -> None:
    """Return when at most one distribution is there.

    Both own the same files, so with both installed the last one wins silently.

    Raises:
        Unavailable: both are installed; says what to remove.
    """
    if _is_installed(_CPU) and _is_installed(_GPU):
        raise Unavailable(
            "both onnxruntime and onnxruntime-gpu are installed and overwrite each other's files: "
            "uninstall both, then install anabranch with exactly one of the extras [cpu] and [gpu]"
        )


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
