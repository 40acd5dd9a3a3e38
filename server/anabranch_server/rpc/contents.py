"""Typed tensor contents, which only gRPC has: lists of a message to arrays."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_server.limits import Limits
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.oip import InferTensorContents
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["read_contents"]

_FIELDS: Final[Mapping[Datatype, str]] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The list that carries a datatype; FP16 and BF16 have none."""


def read_contents(
    spec: TensorSpec,
    shape: tuple[int, ...],
    count: int,
    contents: InferTensorContents,
    limits: Limits,
) -> NDArray[np.generic]:
    """Return typed contents as a new array of `shape`.

    Args:
        spec: declared input; `shape` was accepted for it.
        shape: axes as sent.
        count: elements of `shape`, at most `limits.max_elements`.
        contents: elements in the list of the datatype, the other lists empty.
        limits: `max_string_bytes` applies.

    Raises:
        InvalidInput: wrong list, wrong number of elements, an element out of range, or a datatype
            that has no list.
        TooLarge: a BYTES element passes its limit.
    """
    field = _FIELDS.get(spec.datatype)
    if field is None:
        raise InvalidInput(
            f"input {spec.name!r}: {spec.datatype} has no typed contents; send raw_input_contents"
        )
    for descriptor, _ in contents.ListFields():
        if descriptor.name != field:
            raise InvalidInput(
                f"input {spec.name!r}: expected {spec.datatype} in {field}, got {descriptor.name}"
            )
    elements = getattr(contents, field)
    if len(elements) != count:
        raise InvalidInput(
            f"input {spec.name!r}: expected {count} elements in {field} for shape {list(shape)}, "
            f"got {len(elements)}"
        )
    if spec.datatype == "BYTES":
        return _strings(spec, elements, limits).reshape(shape)
    if field in ("int_contents", "uint_contents"):
        return _narrow(spec, np.array(elements, np.int64)).reshape(shape)
    return np.array(elements, spec.dtype).reshape(shape)


def _narrow(spec: TensorSpec, wide: NDArray[np.int64]) -> NDArray[np.generic]:
    bounds = np.iinfo(spec.dtype.name)
    if wide.size and not (bounds.min <= wide.min() and wide.max() <= bounds.max):
        raise InvalidInput(
            f"input {spec.name!r}: expected {spec.datatype} elements from {bounds.min} to "
            f"{bounds.max}, got one outside"
        )
    return wide.astype(spec.dtype)


def _strings(spec: TensorSpec, elements: Sequence[bytes], limits: Limits) -> NDArray[np.generic]:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    longest = max(map(len, elements), default=0)
    if longest > limits.max_string_bytes:
        raise TooLarge(
            f"input {spec.name!r}: an element of {longest} bytes, "
            f"at most {limits.max_string_bytes} allowed"
        )
    return array
