"""The JSON part of a body as an `InferRequest`, within limits that hold before it is decoded.

A decoder's work is bounded by the native scan (depth, elements, string length). That leaves
documents that are small on the wire and large as objects: thousands of tensors, shapes with
millions of axes. Below 4 MiB they cannot become more than some 30 MB; above it, objects are
counted and shapes measured first.
"""

import re
from contextlib import suppress
from itertools import islice
from typing import Final

import msgspec

from anabranch_runtime import json_numbers
from anabranch_server.json_documents import explained, without_bare_tokens
from anabranch_server.limits import Limits
from anabranch_server.oip.binary import Body
from anabranch_server.oip.messages import (
    InferRequest,
    InputTensor,
    LargeInferRequest,
    LargeInputTensor,
)
from anabranch_server.oip.outlines import Outline, outline_of
from anabranch_wire.errors import InvalidInput, TooLarge

__all__ = ["read_document"]

_LARGE_BYTES: Final = 4 * 1024 * 1024
_OUTLINED_BYTES: Final = 4096

_SMALL: Final = msgspec.json.Decoder(InferRequest)
_LARGE: Final = msgspec.json.Decoder(LargeInferRequest)
_SHAPE: Final = msgspec.json.Decoder(tuple[int, ...])
_BRACE: Final = re.compile(rb"\{")
# A brace that opens an object, or some of the way to one: a single match holds the GIL. The closing
# quote is optional so that a cut string matches too: no start is tried twice.
_TOWARDS_OBJECT: Final = re.compile(rb'(?:[^"{]+|"(?:[^"\\]+|\\.)*+"?){0,8}+(\{?)', re.DOTALL)
_WELL_FORMED: Final = (msgspec.ValidationError, RecursionError)
"""Faults of documents that are JSON as far as they were read."""


def read_document(body: Body, json_bytes: int, limits: Limits) -> InferRequest:
    """Decode the JSON at the front of a body; tensor data stays undecoded views.

    Raises:
        TooLarge: nested too deeply, too many elements or tensors, a string or shape too long.
        InvalidInput: not JSON, or not an infer request; says where, and what was expected.
    """
    text = memoryview(body)[:json_bytes]
    try:
        json_numbers.scan(
            text, limits.max_json_depth, limits.max_json_elements, limits.max_string_bytes
        )
    except ValueError as error:
        raise TooLarge(f"request JSON: {error}") from None
    outline = outline_of(body, json_bytes) if json_bytes >= _OUTLINED_BYTES else None
    if outline is not None:
        with suppress(msgspec.DecodeError):
            request = outline.restored(_decode(outline.text, limits))
            if request is not None:
                return request
    try:
        return _decode(text, limits)
    except (msgspec.DecodeError, RecursionError) as error:
        return _read_with_bare_tokens(bytes(text), limits, error)


def _decode(text: bytes | memoryview, limits: Limits) -> InferRequest:
    return _SMALL.decode(text) if len(text) <= _LARGE_BYTES else _read_large(text, limits)


def _read_large(text: bytes | memoryview, limits: Limits) -> InferRequest:
    # Each tensor and each requested output is an object, with one more for its parameters.
    objects = 4 * limits.max_tensors + 8
    if _has_more_objects(text, objects):
        raise TooLarge(f"request JSON: more objects than {limits.max_tensors} tensors can have")
    large = _LARGE.decode(text)
    inputs = [_opened(tensor, limits) for tensor in large.inputs]
    return InferRequest(inputs, large.id, large.outputs, large.parameters)


def _has_more_objects(text: bytes | memoryview, most: int) -> bool:
    if not any(islice(_BRACE.finditer(text), most, None)):
        return False  # not even with those in strings
    opened = (match for match in _TOWARDS_OBJECT.finditer(text) if match[1])
    return any(islice(opened, most, None))


def _opened(tensor: LargeInputTensor, limits: Limits) -> InputTensor:
    if len(memoryview(tensor.shape)) > 64 * (limits.max_dims + 1):
        raise TooLarge(f"input {tensor.name[:200]!r}: shape has more than {limits.max_dims} axes")
    shape = _SHAPE.decode(tensor.shape)
    return InputTensor(tensor.name, tensor.datatype, shape, tensor.parameters, tensor.data)


def _read_with_bare_tokens(source: bytes, limits: Limits, fault: Exception) -> InferRequest:
    """Decode a document that may hold NaN or Infinity, which strict JSON lacks.

    Triton's and TensorFlow Serving's clients write them. They are decoded as numbers of the same
    length; data that holds any is then taken from where it was sent.
    """
    text = None if isinstance(fault, _WELL_FORMED) else without_bare_tokens(source)
    if text is None:
        raise InvalidInput(explained(fault)) from None
    try:
        request = _decode(text, limits)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(explained(error)) from None
    return Outline(text, source, cuts={}).restored(request) or request
