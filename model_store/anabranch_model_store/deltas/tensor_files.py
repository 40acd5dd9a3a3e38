"""Safetensors files in memory: arrays that are views of the bytes, nothing copied or trusted.

The format is https://github.com/huggingface/safetensors#format: eight bytes with the length of the
header, the header as JSON, and the numbers, without a gap or an overlap.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from anabranch_model_store.deltas.faults import DeltaCorrupt

__all__ = ["Tensor", "read_tensors"]

_CARRIERS: Final[Mapping[str, np.dtype[np.generic]]] = {
    name: np.dtype(carrier)
    for name, carrier in (
        ("BOOL", "?"), ("U8", "<u1"), ("I8", "<i1"), ("U16", "<u2"), ("I16", "<i2"),
        ("U32", "<u4"), ("I32", "<i4"), ("U64", "<u8"), ("I64", "<i8"), ("F16", "<f2"),
        ("BF16", "<u2"), ("F32", "<f4"), ("F64", "<f8"),
    )
}  # fmt: skip
"""Element types, and what NumPy holds them in: bfloat16 by its bits."""

_MAX_HEADER: Final = 100_000_000
_MAX_NAMES: Final = 100_000
_SIZE: Final = 8

_Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor in the header."""

    dtype: str
    shape: Annotated[tuple[_Size, ...], Meta(max_length=64)]
    data_offsets: tuple[_Size, _Size]


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One array of a file.

    Attributes:
        dtype: as the format names it.
        array: over the bytes of the file; of BF16 the bits, as uint16.
    """

    dtype: str
    array: NDArray[np.generic]


def read_tensors(data: NDArray[np.uint8], what: str) -> dict[str, Tensor]:
    """Return the arrays of a file, by name.

    Args:
        data: all of its bytes; the arrays keep them.
        what: how messages name the file.

    Raises:
        DeltaCorrupt: it is no such file; says what is wrong.
    """
    if len(data) < _SIZE:
        raise _malformed(what, f"{len(data)} bytes are no header")
    length = int.from_bytes(data[:_SIZE].tobytes(), "little")
    begin = _SIZE + length
    if length > _MAX_HEADER or begin > len(data):
        raise _malformed(what, f"a header of {length} bytes in a file of {len(data)}")
    try:
        raw = msgspec.json.decode(data[_SIZE:begin].tobytes(), type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        if len(raw) > _MAX_NAMES:
            raise _malformed(what, f"{len(raw)} tensors; expected at most {_MAX_NAMES}")
        entries = {name: msgspec.json.decode(one, type=_Entry) for name, one in raw.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(what, str(error)) from None
    at = 0
    tensors = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        first, end = entry.data_offsets
        carrier = _CARRIERS.get(entry.dtype)
        if carrier is None:
            raise _malformed(what, f"{name}: elements of {entry.dtype[:20]}")
        if first != at or end != first + math.prod(entry.shape) * carrier.itemsize:
            raise _malformed(what, f"{name}: bytes {first} to {end} for shape {list(entry.shape)}")
        if begin + end > len(data):
            raise _malformed(what, f"{name}: it ends behind the file")
        try:
            array = data[begin + first : begin + end].view(carrier).reshape(entry.shape)
        except ValueError as error:  # sizes that no array has
            raise _malformed(what, f"{name}: {error}") from None
        tensors[name] = Tensor(entry.dtype, array)
        at = end
    if begin + at != len(data):
        raise _malformed(what, f"{len(data) - begin - at} bytes behind the last tensor")
    return tensors


def _malformed(what: str, why: str) -> DeltaCorrupt:
    return DeltaCorrupt("invalid", f"{what}: no safetensors file: {why[:300]}")
