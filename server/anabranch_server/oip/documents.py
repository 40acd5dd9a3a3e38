"""The JSON part of a body as an `InferRequest`, within limits that hold before it is decoded.

A decoder's work is bounded by the native scan (depth, elements, string length). That leaves
documents that are small on the wire and large as objects: thousands of tensors, shapes with
millions of axes. Below `LARGE` bytes they cannot become more than some 30 MB; above it, objects are
counted and shapes measured first.
"""

import re
from typing import Final

import msgspec
import numpy as np

from anabranch_runtime import json_numbers
from anabranch_server.limits import Limits
from anabranch_server.oip.messages import (
    InferRequest,
    InputTensor,
    LargeInferRequest,
    LargeInputTensor,
)
from anabranch_wire.errors import InvalidInput, TooLarge

__all__ = ["read_document"]

LARGE: Final = 4 * 1024 * 1024
"""Bytes of a JSON document from which on its structure is measured before it is decoded."""

_SMALL: Final = msgspec.json.Decoder(InferRequest)
_LARGE: Final = msgspec.json.Decoder(LargeInferRequest)
_SHAPE: Final = msgspec.json.Decoder(tuple[int, ...])
# The closing quote is optional so that a cut string matches too: no start is tried twice.
_STRING: Final = re.compile(rb'"(?:[^"\\]+|\\.)*+"?', re.DOTALL)
_BARE_TOKENS: Final = re.compile(rb'"(?:[^"\\]+|\\.)*+"?|NaN|-?Infinity', re.DOTALL)
_BARE_BYTES: Final = (b"NaN", b"Infinity")


def read_document(text: memoryview, limits: Limits) -> InferRequest:
    """Decode the JSON of an infer request; tensor data stays a view of `text`.

    Raises:
        TooLarge: nested too deeply, too many elements or tensors, a string or shape too long.
        InvalidInput: not JSON, or not an infer request; says where, and what was expected.
    """
    try:
        json_numbers.scan(
            text, limits.max_json_depth, limits.max_json_elements, limits.max_string_bytes
        )
    except ValueError as error:
        raise TooLarge(f"request JSON: {error}") from None
    try:
        return _decode(text, limits)
    except (msgspec.DecodeError, RecursionError) as error:
        return _read_with_bare_tokens(text, limits, error)


def _decode(text: memoryview, limits: Limits) -> InferRequest:
    return _SMALL.decode(text) if len(text) <= LARGE else _read_large(text, limits)


def _read_large(text: memoryview, limits: Limits) -> InferRequest:
    # Each tensor and each requested output is an object, with one more for its parameters.
    objects = 4 * limits.max_tensors + 8
    document = bytes(text)
    if document.count(b"{") > objects and _STRING.sub(b'""', document).count(b"{") > objects:
        raise TooLarge(f"request JSON: more objects than {limits.max_tensors} tensors can have")
    large = _LARGE.decode(text)
    inputs = [_opened(tensor, limits) for tensor in large.inputs]
    return InferRequest(inputs, large.id, large.outputs, large.parameters)


def _opened(tensor: LargeInputTensor, limits: Limits) -> InputTensor:
    if len(memoryview(tensor.shape)) > 64 * (limits.max_dims + 1):
        raise TooLarge(f"input {tensor.name[:200]!r}: shape has more than {limits.max_dims} axes")
    shape = _SHAPE.decode(tensor.shape)
    return InputTensor(tensor.name, tensor.datatype, shape, tensor.parameters, tensor.data)


def _read_with_bare_tokens(text: memoryview, limits: Limits, fault: Exception) -> InferRequest:
    """Decode a document that may hold NaN or Infinity, which strict JSON lacks.

    Triton's and TensorFlow Serving's clients write them. The structure is decoded from a copy with
    stand-ins of the same length; the data are views of `text` at the same places.
    """
    if isinstance(fault, msgspec.ValidationError):
        raise InvalidInput(_explained(fault)) from None
    document = bytes(text)
    if not any(token in document for token in _BARE_BYTES):
        raise InvalidInput(_explained(fault)) from None
    plain = _BARE_TOKENS.sub(_stand_in, document)
    try:
        request = _decode(memoryview(plain), limits)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(_explained(error)) from None
    start = _address(plain)
    inputs = [
        InputTensor(
            tensor.name,
            tensor.datatype,
            tensor.shape,
            tensor.parameters,
            _same_place(tensor.data, start, text),
        )
        for tensor in request.inputs
    ]
    return InferRequest(inputs, request.id, request.outputs, request.parameters)


def _stand_in(match: re.Match[bytes]) -> bytes:
    token = match[0]
    return token if token.startswith(b'"') else b"1" * len(token)


def _same_place(
    part: msgspec.Raw | msgspec.UnsetType, start: int, text: memoryview
) -> msgspec.Raw | msgspec.UnsetType:
    if part is msgspec.UNSET:
        return part
    offset = _address(part) - start
    return msgspec.Raw(text[offset : offset + len(memoryview(part))])


def _address(buffer: bytes | msgspec.Raw) -> int:
    return np.frombuffer(buffer, np.uint8).ctypes.data


def _explained(fault: Exception) -> str:
    """The message of msgspec with the place first: `inputs[0].shape[1]: expected int, got str`."""
    if isinstance(fault, RecursionError):
        return "request JSON: nested too deeply"
    reason, _, place = str(fault).partition(" - at `$")
    reason = reason.replace("`", "")
    if reason.startswith("Object missing required field "):
        reason = f"missing field {reason.rpartition(' ')[2]!r}"
    elif reason.startswith(("Expected", "Invalid", "Input")):
        reason = reason[0].lower() + reason[1:]
    place = place.rstrip("`").removeprefix(".")
    return f"request JSON: {place}: {reason}" if place else f"request JSON: {reason}"
