"""Parameters of the Open Inference Protocol as they arrive over gRPC."""

from collections.abc import Mapping

from anabranch_server.oip.messages import OutputParameters
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.oip import InferParameter

__all__ = [
    "check_input_parameters",
    "check_routing_key",
    "read_output_parameters",
    "read_priority",
    "read_timeout_s",
]

Parameters = Mapping[str, InferParameter]


def read_timeout_s(parameters: Parameters) -> float | None:
    """Return the `timeout` of a request (microseconds) in seconds; None if absent or 0.

    Raises:
        InvalidInput: it is not an integer of at least 0.
    """
    return _natural("timeout", parameters) / 1e6 or None


def read_priority(parameters: Parameters) -> int:
    """Return the `priority` of a request; 0, the default level, if absent.

    Raises:
        InvalidInput: it is not an integer of at least 0.
    """
    return _natural("priority", parameters)


def check_routing_key(parameters: Parameters) -> None:
    """Return unless the request has a `routing_key` that is none.

    Raises:
        InvalidInput: it is neither a string nor an integer.
    """
    if "routing_key" in parameters:
        kind = parameters["routing_key"].WhichOneof("parameter_choice")
        if kind not in ("string_param", "int64_param", "uint64_param"):
            raise InvalidInput(f"parameter 'routing_key': expected a string or integer, got {kind}")


def check_input_parameters(name: str, parameters: Parameters) -> None:
    """Return unless an input's contents are said to be elsewhere.

    Raises:
        Unsupported: they lie in shared memory.
    """
    if "shared_memory_region" in parameters:
        raise Unsupported(f"input {name!r}: shared memory is not supported")


def read_output_parameters(parameters: Parameters) -> OutputParameters:
    """Return what an output asks for that would change its form."""
    return OutputParameters(
        classification=1 if "classification" in parameters else None,
        shared_memory_region="" if "shared_memory_region" in parameters else None,
    )


def _natural(name: str, parameters: Parameters) -> int:
    if name not in parameters:
        return 0
    parameter = parameters[name]
    kind = parameter.WhichOneof("parameter_choice")
    if kind == "int64_param" and parameter.int64_param >= 0:
        return parameter.int64_param
    if kind == "uint64_param":
        return parameter.uint64_param
    raise InvalidInput(f"parameter {name!r}: expected an integer of at least 0 as int64_param")
