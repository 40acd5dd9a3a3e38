"""A ModelInferRequest as the parts of a `ScoreRequest`."""

import math

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.served import ServedVersion
from anabranch_server.limits import Limits
from anabranch_server.oip.binary import view_tensor
from anabranch_server.oip.messages import RequestedOutput
from anabranch_server.oip.wanted import wanted_outputs
from anabranch_server.rpc.answers import parse
from anabranch_server.rpc.contents import read_contents
from anabranch_server.rpc.envelope import check_envelope
from anabranch_server.rpc.parameters import check_input_parameters, read_output_parameters
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.oip import ModelInferRequest

__all__ = ["parse_request", "read_inputs", "read_outputs"]


def parse_request(body: bytes, limits: Limits) -> ModelInferRequest:
    """Parse a message.

    Raises:
        InvalidInput: `body` is not a ModelInferRequest.
        TooLarge: it has too many fields to be one.
    """
    check_envelope(body, limits)
    return parse(ModelInferRequest, body)


def read_inputs(
    message: ModelInferRequest, served: ServedVersion, limits: Limits
) -> tuple[tuple[NDArray[np.generic], ...], int]:
    """Return the inputs in the model's order, and the number of rows.

    Raw arrays are read-only views of `message`'s bytes, which they keep alive.

    Raises:
        InvalidInput: a tensor is not what the model declares, is sent twice or not at all, or
            contents are typed and raw at once, or neither.
        TooLarge: a limit is passed.
        Unsupported: a tensor asks for shared memory.
    """
    tensors = message.inputs
    raws = message.raw_input_contents
    given = len(tensors)
    if given > limits.max_tensors:
        raise TooLarge(f"{given} inputs: at most {limits.max_tensors} are allowed")
    if raws and len(raws) != given:
        raise InvalidInput(
            f"{len(raws)} raw_input_contents for {given} inputs: expected one for each"
        )
    arrays: dict[str, NDArray[np.generic]] = {}
    for index in range(given):  # repeated fields end an iteration with a costly IndexError
        tensor = tensors[index]
        axes = tensor.shape
        if len(axes) > limits.max_dims:
            raise TooLarge(
                f"input {tensor.name[:200]!r}: {len(axes)} axes, at most {limits.max_dims} allowed"
            )
        shape = tuple(axes)
        spec = served.rules.find(tensor.name, tensor.datatype, shape)
        if spec.name in arrays:
            raise InvalidInput(f"input {spec.name!r} is given twice")
        if tensor.parameters:
            check_input_parameters(spec.name, tensor.parameters)
        rows = served.rules.rows_in(spec.name, shape)
        if rows > limits.max_rows:
            raise TooLarge(f"input {spec.name!r}: {rows} rows, at most {limits.max_rows} allowed")
        count = math.prod(shape)
        if count > limits.max_elements:
            raise TooLarge(
                f"input {spec.name!r}: {count} elements, at most {limits.max_elements} allowed"
            )
        if raws:
            if tensor.HasField("contents"):
                raise InvalidInput(
                    f"input {spec.name!r}: contents and raw_input_contents are both there; send one"
                )
            raw = raws[index]
            arrays[spec.name] = view_tensor(raw, 0, len(raw), spec, shape, limits)
        elif count and not tensor.HasField("contents"):
            raise InvalidInput(
                f"input {spec.name!r}: neither contents nor raw_input_contents are there"
            )
        else:
            arrays[spec.name] = read_contents(spec, shape, count, tensor.contents, limits)
    return served.rules.order(arrays)


def read_outputs(
    message: ModelInferRequest, served: ServedVersion, limits: Limits
) -> tuple[int, ...]:
    """Return the indexes of the requested outputs; empty for all.

    Raises:
        InvalidInput: an output does not exist or is requested twice.
        Unsupported: an output asks for shared memory or for classes.
    """
    if not message.outputs:
        return ()
    requested = [
        RequestedOutput(
            output.name, read_output_parameters(output.parameters) if output.parameters else None
        )
        for output in message.outputs
    ]
    return wanted_outputs(requested, True, served, limits)[0]
