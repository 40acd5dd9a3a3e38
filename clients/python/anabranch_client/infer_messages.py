"""Messages of an Open Inference Protocol call over gRPC, with raw contents."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from anabranch_client.infer_bodies import Scores, check_types, datatype_of_array, read_output
from anabranch_client.message_bytes import Part, delimited
from anabranch_wire.binary_tensors import encode_tensor
from anabranch_wire.errors import Internal
from anabranch_wire.oip import ModelInferRequest, ModelInferResponse

__all__ = ["decode_scores", "encode_scoring"]

_RAW: Final = ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER


def encode_scoring(
    model: str,
    version: str,
    inputs: Mapping[str, NDArray[np.generic]],
    outputs: Sequence[str] | None,
) -> bytes:
    """Return a serialised ModelInferRequest.

    Raises:
        InvalidInput: an input is no array, or its dtype has no name in the protocol.
    """
    check_types(inputs, outputs)
    message = ModelInferRequest(model_name=model, model_version=version)
    raws: list[Part] = []
    for name, array in inputs.items():
        datatype = datatype_of_array(name, array)
        message.inputs.add(name=name, datatype=datatype, shape=array.shape)
        raws += delimited(_RAW, [encode_tensor(array, datatype)])
    for name in outputs or ():
        message.outputs.add(name=name)
    return b"".join([message.SerializeToString(), *raws])


def decode_scores(body: bytes, request_id: str) -> Scores:
    """Read a serialised ModelInferResponse; the result views its bytes.

    Raises:
        Internal: it is not what was asked for.
    """
    try:
        answer = ModelInferResponse.FromString(body)
    except DecodeError as error:
        raise Internal(f"the answer is not that of an infer call: {error}") from None
    raws = answer.raw_output_contents
    if len(raws) != len(answer.outputs):
        raise Internal(f"{len(answer.outputs)} outputs came with {len(raws)} contents")
    outputs = {
        output.name: read_output(memoryview(raw), output.name, output.datatype, output.shape)
        for output, raw in zip(answer.outputs, raws, strict=True)
    }
    delta = answer.parameters["delta"].int64_param if "delta" in answer.parameters else 0
    return Scores(outputs, answer.model_name, answer.model_version, delta, request_id)
