"""Tensors as bytes: the binary form of the Open Inference Protocol, in both directions.

Elements are little-endian, row-major and without padding; BOOL takes one byte, 0 or 1; a BYTES
element is preceded by its length in four bytes. The same bytes are the binary part of an HTTP body
and a `raw_input_contents` entry of gRPC. Decoding allocates at most in proportion to the bytes
given: sizes that a caller merely claims are compared with them first.
"""

import math
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.tensors import DATATYPES, Datatype

__all__ = [
    "bfloat16_to_float32",
    "decode_tensor",
    "encode_tensor",
    "float32_to_bfloat16",
]

_LENGTH: Final = struct.Struct("<I")


def decode_tensor(
    data: bytes | bytearray | memoryview,
    datatype: Datatype,
    shape: Sequence[int],
    what: str,
    *,
    max_element_bytes: int | None = None,
) -> NDArray[np.generic]:
    """Return the tensor that `data` holds.

    Args:
        data: exactly this tensor's bytes. Except for BYTES, the result is a view of them: they must
            stay as they are while it is used, and it is read-only where they are.
        datatype: a key of `DATATYPES`; BF16 gives its bits as uint16.
        shape: sizes of the axes, all at least 0.
        what: how messages name the tensor, as in `"input 'x'"`.
        max_element_bytes: longest BYTES element to accept; None for no limit.

    Returns:
        An array of `shape` and the carrier dtype of `datatype`; for BYTES, objects of type `bytes`.

    Raises:
        InvalidInput: `data` does not hold such a tensor.
        TooLarge: a BYTES element is longer than `max_element_bytes`.
    """
    if any(size < 0 for size in shape):
        raise InvalidInput(f"{what}: shape {list(shape)} has a negative size")
    count = math.prod(shape)
    view = memoryview(data).cast("B")
    if datatype == "BYTES":
        flat: NDArray[np.generic] = _split(bytes(view), count, what, max_element_bytes)
    else:
        dtype = DATATYPES[datatype]
        if len(view) != count * dtype.itemsize:
            raise InvalidInput(
                f"{what}: expected {count * dtype.itemsize} bytes for {datatype} {list(shape)}, "
                f"got {len(view)}"
            )
        if datatype == "BOOL" and np.frombuffer(view, np.uint8).max(initial=0) > 1:
            raise InvalidInput(f"{what}: a BOOL byte must be 0 or 1")
        flat = np.frombuffer(view, dtype)
    try:
        return flat.reshape(shape)
    except ValueError:  # more axes than NumPy has, or empty but with sizes beyond its index type
        raise InvalidInput(f"{what}: shape {list(shape)[:64]} cannot be represented") from None


def encode_tensor(array: NDArray[np.generic], datatype: Datatype) -> memoryview:
    """Return the bytes of `array` as a tensor of `datatype`.

    The result is a view of the array wherever that is possible: the array must not change until the
    bytes are sent or copied.

    Args:
        array: of the carrier dtype of `datatype` in either byte order; for BF16 also `bfloat16`;
            for BYTES an array of `bytes` or `str` objects (`str` becomes UTF-8) or of fixed-width
            strings.
        datatype: a key of `DATATYPES`.

    Raises:
        InvalidInput: the array has another dtype, or a BYTES element is neither `bytes` nor `str`.
    """
    if datatype == "BYTES":
        return memoryview(_joined(array))
    carrier = DATATYPES[datatype]
    if datatype == "BF16" and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    elif array.dtype.newbyteorder("<") != carrier:
        raise InvalidInput(f"expected an array of {carrier} for {datatype}, got {array.dtype}")
    packed = np.ascontiguousarray(array, carrier)
    return packed.reshape(-1).view(np.uint8).data


def bfloat16_to_float32(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the values of BF16 `bits`, exactly, in the same shape."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def float32_to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the BF16 bits nearest to `values` (ties to even), in the same shape; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(values.shape)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    with np.errstate(over="ignore"):  # only the bits of a NaN can wrap, and those are not taken
        rounded = (bits + half) >> np.uint32(16)
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)


def _split(data: bytes, count: int, what: str, limit: int | None) -> NDArray[np.object_]:
    """Cut `count` length-prefixed elements, which must fill `data`."""
    size = len(data)
    if count * _LENGTH.size > size:
        raise InvalidInput(f"{what}: {count} BYTES elements do not fit into {size} bytes")
    longest = size if limit is None else limit
    length_at = _LENGTH.unpack_from
    elements: list[bytes] = []
    end = 0
    for index in range(count):
        start = end + _LENGTH.size
        if start > size:
            raise InvalidInput(f"{what}: BYTES element {index} of {count} has no length")
        (length,) = length_at(data, end)
        end = start + length
        if end > size:
            raise InvalidInput(
                f"{what}: BYTES element {index} claims {length} bytes, {size - start} are left"
            )
        if length > longest:
            raise TooLarge(
                f"{what}: BYTES element {index} has {length} bytes, the limit is {limit}"
            )
        elements.append(data[start:end])
    if end != size:
        raise InvalidInput(f"{what}: {size - end} bytes are left after {count} BYTES elements")
    array = np.empty(count, np.object_)
    array[:] = elements
    return array


def _joined(array: NDArray[np.generic]) -> bytes:
    if array.dtype.kind not in "OSU":
        raise InvalidInput(f"expected an array of bytes or str for BYTES, got {array.dtype}")
    parts: list[bytes] = []
    for item in array.ravel().tolist():
        data = item.encode() if isinstance(item, str) else item
        if not isinstance(data, bytes):
            raise InvalidInput(
                f"expected bytes or str in a BYTES tensor, got {type(item).__name__}"
            )
        parts += (_LENGTH.pack(len(data)), data)
    return b"".join(parts)
