"""Tensors as raw little-endian bytes: views of a body, never copies, except for BYTES.

A BYTES tensor is a sequence of elements, each with its length in front as an unsigned 32-bit
integer; every other datatype is its elements in row-major order without padding.
"""

import struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_server.limits import Limits
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.tensors import TensorSpec

__all__ = ["Body", "pack_bytes", "view_tensor"]

Body = bytes | bytearray
"""A whole request body, decompressed; must not change while a view of it lives."""

_LENGTH: Final = struct.Struct("<I")


def view_tensor(
    body: Body, offset: int, size: int, spec: TensorSpec, shape: tuple[int, ...], limits: Limits
) -> NDArray[np.generic]:
    """Return `size` bytes of `body` as a tensor of `shape`.

    Args:
        body: owned by the array for as long as it lives.
        offset: where the tensor begins.
        size: its bytes; they must lie within `body`.
        spec: gives name and datatype.
        shape: accepted by the model's rules; its elements are at most `limits.max_elements`.
        limits: bounds the length of a string.

    Raises:
        InvalidInput: `size` does not fit the shape, or the bytes are no such tensor.
        TooLarge: a BYTES element passes `limits.max_string_bytes`.
    """
    count = 1
    for axis in shape:
        count *= axis
    if spec.datatype == "BYTES":
        return _unpack_bytes(body, offset, size, spec, shape, count, limits)
    dtype = spec.dtype
    expected = count * dtype.itemsize
    if size != expected:
        raise InvalidInput(
            f"input {spec.name!r}: expected {expected} bytes for {spec.datatype} "
            f"{list(shape)}, got {size}"
        )
    array: NDArray[np.generic] = np.ndarray(shape, dtype, body, offset)
    if dtype.kind == "b" and count and int(array.view(np.uint8).max()) > 1:
        raise InvalidInput(f"input {spec.name!r}: expected BOOL bytes of 0 or 1")
    return array


def pack_bytes(array: NDArray[np.generic]) -> bytes:
    """Return the elements of a BYTES tensor, each behind its length."""
    pack = _LENGTH.pack
    return b"".join(
        [part for value in array.ravel().tolist() for part in (pack(len(value)), value)]
    )


def _unpack_bytes(
    body: Body,
    offset: int,
    size: int,
    spec: TensorSpec,
    shape: tuple[int, ...],
    count: int,
    limits: Limits,
) -> NDArray[np.generic]:
    # Every element takes at least its length: a count that cannot be there is not allocated.
    if count * _LENGTH.size > size:
        raise InvalidInput(
            f"input {spec.name!r}: expected {count} BYTES elements with a 4-byte length each, "
            f"got {size} bytes"
        )
    elements = np.empty(count, np.object_)
    end = offset + size
    longest = limits.max_string_bytes
    read = _LENGTH.unpack_from
    for index in range(count):
        if offset + _LENGTH.size > end:
            raise InvalidInput(f"input {spec.name!r}: expected {count} BYTES elements, got {index}")
        (length,) = read(body, offset)
        if length > longest:
            raise TooLarge(
                f"input {spec.name!r}, element {index}: {length} bytes, at most {longest} allowed"
            )
        offset += _LENGTH.size
        stop = offset + length
        if stop > end:
            raise InvalidInput(
                f"input {spec.name!r}, element {index}: expected {length} bytes, got {end - offset}"
            )
        elements[index] = bytes(body[offset:stop])
        offset = stop
    if offset != end:
        raise InvalidInput(
            f"input {spec.name!r}: {end - offset} bytes behind its {count} BYTES elements"
        )
    return elements.reshape(shape)
