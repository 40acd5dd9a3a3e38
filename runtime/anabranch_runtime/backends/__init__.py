"""Dense backends, imported when one is asked for."""

from anabranch_runtime.backends.protocol import Binding, DenseBackend, Engine, Stage
from anabranch_wire.errors import InvalidInput, Unsupported

__all__ = ["Binding", "DenseBackend", "Engine", "Stage", "load_backend"]


def load_backend(name: str) -> DenseBackend:
    """Return the backend that serving.yaml calls `name`.

    Raises:
        InvalidInput: there is no backend of that name.
        Unsupported: the name is planned, but this release does not have it.
        Unavailable: its library is not installed, or two exclude each other.
    """
    if name == "ort-cpu":
        from anabranch_runtime.backends.ort_cpu import OrtCpuBackend

        return OrtCpuBackend()
    if name in ("ort-cuda", "tensorrt"):
        raise Unsupported(f"backend {name!r} is not in this release; use ort-cpu")
    raise InvalidInput(f"backend {name!r}: expected ort-cpu, ort-cuda or tensorrt")
