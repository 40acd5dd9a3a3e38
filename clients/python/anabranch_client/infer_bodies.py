"""Bodies of an Open Inference Protocol call over HTTP, in its binary form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from anabranch_wire.binary_tensors import bfloat16_to_float32, decode_tensor, encode_tensor
from anabranch_wire.errors import Internal, InvalidInput
from anabranch_wire.tensors import Datatype, datatype_of

__all__ = [
    "HEADER_LENGTH",
    "Scores",
    "check_types",
    "datatype_of_array",
    "decode_answer",
    "encode_request",
    "read_output",
]

HEADER_LENGTH: Final = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The answer to one scoring request.

    Attributes:
        outputs: output name -> array. BF16 comes as float32, BYTES as objects of type `bytes`.
            The arrays are read-only views of the received bytes, except for those two.
        model: name of the model that answered.
        version: its version, as text.
        delta: the newest delta in it; 0 is the version as published.
        request_id: under which the server's logs know the call.
    """

    outputs: dict[str, NDArray[np.generic]]
    model: str
    version: str
    delta: int
    request_id: str = ""


class _Parameters(msgspec.Struct):
    binary_data_size: int | None = None
    delta: int = 0


class _Output(msgspec.Struct):
    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


class _Answer(msgspec.Struct):
    model_name: str
    outputs: list[_Output]
    model_version: str = ""
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


def encode_request(
    inputs: Mapping[str, NDArray[np.generic]], outputs: Sequence[str] | None
) -> tuple[bytes, int]:
    """Return a request body, and the length of its JSON part.

    Args:
        inputs: input name -> array; see `Client.score`.
        outputs: which outputs to return; None for all.

    Raises:
        InvalidInput: an input is no array, or its dtype has no name in the protocol.
    """
    check_types(inputs, outputs)
    declared = []
    tensors = []
    for name, array in inputs.items():
        datatype = datatype_of_array(name, array)
        data = encode_tensor(array, datatype)
        tensors.append(data)
        declared.append(
            {
                "name": name,
                "datatype": datatype,
                "shape": array.shape,
                "parameters": {"binary_data_size": len(data)},
            }
        )
    header: dict[str, object] = {
        "inputs": declared,
        "parameters": {"binary_data_output": True},
    }
    if outputs is not None:
        header["outputs"] = [{"name": name} for name in outputs]
    encoded = msgspec.json.encode(header)
    return b"".join((encoded, *tensors)), len(encoded)


def decode_answer(body: bytes, header_length: int, request_id: str = "") -> Scores:
    """Read the body of a successful answer; the result views it.

    Args:
        body: whole.
        header_length: length of its JSON part.
        request_id: of the call.

    Raises:
        Internal: it is not what was asked for.
    """
    try:
        answer = msgspec.json.decode(body[:header_length], type=_Answer)
    except msgspec.DecodeError as error:
        raise Internal(f"the answer is not that of an infer call: {error}") from None
    outputs: dict[str, NDArray[np.generic]] = {}
    end = header_length
    for output in answer.outputs:
        size = output.parameters.binary_data_size
        if size is None or not 0 <= size <= len(body) - end:
            raise Internal(f"output {output.name!r}: its bytes are missing")
        data = memoryview(body)[end : end + size]
        end += size
        outputs[output.name] = read_output(data, output.name, output.datatype, output.shape)
    parameters = answer.parameters
    return Scores(outputs, answer.model_name, answer.model_version, parameters.delta, request_id)


def read_output(
    data: memoryview, name: str, datatype: str, shape: Sequence[int]
) -> NDArray[np.generic]:
    """Return an output as callers get it, in the form that `Scores` says.

    Raises:
        Internal: the bytes hold no such tensor.
    """
    try:
        known = msgspec.convert(datatype, Datatype)
        array = decode_tensor(data, known, shape, f"output {name!r}")
    except msgspec.ValidationError:
        raise Internal(f"output {name!r}: unknown datatype {datatype!r}") from None
    except InvalidInput as error:
        raise Internal(error.message) from None
    return bfloat16_to_float32(array.view(np.uint16)) if datatype == "BF16" else array


def check_types(inputs: object, outputs: object) -> None:
    """Refuse what callers without a type checker pass in place of arrays and names.

    Raises:
        InvalidInput: what and where.
    """
    if not isinstance(inputs, Mapping):
        raise InvalidInput(
            f"inputs: expected a mapping of names to arrays, got {type(inputs).__name__}"
        )
    for name, array in inputs.items():
        if not isinstance(name, str):
            raise InvalidInput(f"inputs: expected names, got {repr(name)[:80]}")
        if not isinstance(array, np.ndarray):
            raise InvalidInput(
                f"input {name!r}: expected a NumPy array, got {type(array).__name__}; its dtype "
                "says what is sent, as in np.asarray(values, np.int64)"
            )
    if isinstance(outputs, str):
        raise InvalidInput(f"outputs: expected a list of names, as in [{outputs!r}]")


def datatype_of_array(name: str, array: NDArray[np.generic]) -> Datatype:
    """Return what the array of an input is called in the protocol.

    Raises:
        InvalidInput: nothing.
    """
    if array.dtype.kind in "SUO":
        return "BYTES"
    if array.dtype.name == "bfloat16":
        return "BF16"
    try:
        return datatype_of(array.dtype.newbyteorder("<"))
    except ValueError as error:
        raise InvalidInput(f"input {name!r}: {error}") from None
