"""The JSON of an infer request, as msgspec reads it.

Types here are as wide as the protocol allows and no wider: a field of another type is a fault of
the caller. Unknown fields and parameters are ignored, as Triton ignores them. Tensor data stays
undecoded (`msgspec.Raw` is a view of the body) until name, datatype and shape were accepted.
"""

import msgspec

__all__ = [
    "InferRequest",
    "InputParameters",
    "InputTensor",
    "LargeInferRequest",
    "LargeInputTensor",
    "OutputParameters",
    "RequestParameters",
    "RequestedOutput",
]


class InputParameters(msgspec.Struct, frozen=True, gc=False):
    """Parameters of one input.

    Attributes:
        binary_data_size: bytes of this input behind the JSON; None when its data is in the JSON.
        shared_memory_region: known to the protocol, refused here.
    """

    binary_data_size: int | None = None
    shared_memory_region: str | None = None


class InputTensor(msgspec.Struct, frozen=True, gc=False):
    """One input as sent; `data` is `UNSET` when the field was absent."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: InputParameters | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class OutputParameters(msgspec.Struct, frozen=True, gc=False):
    """Parameters of one requested output.

    Attributes:
        binary_data: answer it in binary; None leaves it to `binary_data_output`.
        classification: known to the protocol, refused here.
        shared_memory_region: known to the protocol, refused here.
    """

    binary_data: bool | None = None
    classification: int | None = None
    shared_memory_region: str | None = None


class RequestedOutput(msgspec.Struct, frozen=True, gc=False):
    """One output that the caller wants."""

    name: str
    parameters: OutputParameters | None = None


class RequestParameters(msgspec.Struct, frozen=True, gc=False):
    """Parameters of the request.

    Attributes:
        timeout: microseconds; 0 means none.
        priority: 0 means the default, 1 is the highest.
        routing_key: picks the executor where executors are selected by key.
        binary_data_output: answer in binary unless an output says otherwise.
    """

    timeout: int | None = None
    priority: int | None = None
    routing_key: str | int | None = None
    binary_data_output: bool | None = None


class InferRequest(msgspec.Struct, frozen=True, gc=False):
    """An infer request."""

    inputs: list[InputTensor]
    id: str | None = None
    outputs: list[RequestedOutput] | None = None
    parameters: RequestParameters | None = None


class LargeInputTensor(msgspec.Struct, frozen=True, gc=False):
    """An `InputTensor` whose shape is undecoded too, so that its length can be checked first."""

    name: str
    datatype: str
    shape: msgspec.Raw
    parameters: InputParameters | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class LargeInferRequest(msgspec.Struct, frozen=True, gc=False):
    """An infer request in a JSON document of many megabytes."""

    inputs: list[LargeInputTensor]
    id: str | None = None
    outputs: list[RequestedOutput] | None = None
    parameters: RequestParameters | None = None
