"""Request parameters of the Open Inference Protocol as they arrive over gRPC."""

from collections.abc import Mapping

from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.oip import InferParameter

__all__ = ["read_priority", "read_timeout_s", "refuse_unsupported"]

_UNSUPPORTED = {
    "shared_memory_region": "shared memory is not supported: send and receive raw contents",
    "classification": "the classification extension is not supported: ask for the scores",
}


def read_timeout_s(parameters: Mapping[str, InferParameter]) -> float | None:
    """Return the `timeout` parameter (microseconds) in seconds; None if absent or 0.

    Raises:
        InvalidInput: it is not an integer of at least 0.
    """
    if "timeout" not in parameters:
        return None
    return _natural("timeout", parameters["timeout"]) / 1e6 or None


def read_priority(parameters: Mapping[str, InferParameter]) -> int:
    """Return the `priority` parameter; 0, the default level, if absent.

    Raises:
        InvalidInput: it is not an integer of at least 0.
    """
    if "priority" not in parameters:
        return 0
    return _natural("priority", parameters["priority"])


def refuse_unsupported(tensor: str, parameters: Mapping[str, InferParameter]) -> None:
    """Return unless a tensor's parameters would change what it means in a way we do not have.

    Raises:
        Unsupported: they name shared memory or the classification extension.
    """
    for name, text in _UNSUPPORTED.items():
        if name in parameters:
            raise Unsupported(f"tensor {tensor[:200]!r}: {text}")


def _natural(name: str, parameter: InferParameter) -> int:
    kind = parameter.WhichOneof("parameter_choice")
    if kind == "int64_param" and parameter.int64_param >= 0:
        return parameter.int64_param
    if kind == "uint64_param":
        return parameter.uint64_param
    raise InvalidInput(f"parameter {name!r}: expected an integer of at least 0 as int64_param")
