"""Parameters of the Open Inference Protocol as they arrive over gRPC."""

from collections.abc import Mapping
from typing import Final

from anabranch_server.oip.messages import OutputParameters, RequestParameters
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.oip import InferParameter

__all__ = [
    "check_input_parameters",
    "read_output_parameters",
    "read_request_parameters",
]

Parameters = Mapping[str, InferParameter]

_NONE: Final = RequestParameters()


def read_request_parameters(parameters: Parameters) -> RequestParameters:
    """Return the parameters of a request that mean something here.

    Raises:
        InvalidInput: `timeout` or `priority` is not an integer of at least 0, or `routing_key` is
            neither a string nor an integer.
    """
    if not parameters:
        return _NONE
    return RequestParameters(
        timeout=_natural("timeout", parameters),
        priority=_natural("priority", parameters),
        routing_key=_routing_key(parameters),
    )


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


def _routing_key(parameters: Parameters) -> str | int | None:
    if "routing_key" not in parameters:
        return None
    parameter = parameters["routing_key"]
    kind = parameter.WhichOneof("parameter_choice")
    if kind == "string_param":
        return parameter.string_param
    if kind == "int64_param":
        return parameter.int64_param
    if kind == "uint64_param":
        return parameter.uint64_param
    raise InvalidInput(f"parameter 'routing_key': expected a string or integer, got {kind}")


def _natural(name: str, parameters: Parameters) -> int | None:
    if name not in parameters:
        return None
    parameter = parameters[name]
    kind = parameter.WhichOneof("parameter_choice")
    if kind == "int64_param" and parameter.int64_param >= 0:
        return parameter.int64_param
    if kind == "uint64_param":
        return parameter.uint64_param
    raise InvalidInput(f"parameter {name!r}: expected an integer of at least 0 as int64_param")
