"""Numbers as callers have them (NumPy, `ml_dtypes`, PyTorch), made what files hold.

Nothing is rounded: a datatype that a file or a row cannot hold is refused.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensor_files import NUMPY_TYPES

__all__ = [
    "Array",
    "Keys",
    "Numbers",
    "TorchTensor",
    "first_not_finite",
    "keys",
    "numbers",
    "widen",
]


class TorchTensor(Protocol):
    """What is asked of a `torch.Tensor`."""

    def detach(self) -> "TorchTensor":
        """Without its history."""
        ...

    def cpu(self) -> "TorchTensor":
        """In memory."""
        ...

    def contiguous(self) -> "TorchTensor":
        """Packed."""
        ...

    def numpy(self) -> NDArray[np.generic]:
        """As an array."""
        ...


Array = NDArray[np.generic] | TorchTensor
Keys = NDArray[np.integer] | Sequence[int] | TorchTensor

_TYPES: Final = {numpy: name for name, numpy in NUMPY_TYPES.items() if name != "BF16"}
_BF16_EXPONENT: Final = 0x7F80
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Numbers as a file holds them.

    Attributes:
        dtype: of the file format, as "F32".
        array: little-endian; of BF16 the bits, uint16.
    """

    dtype: str
    array: NDArray[np.generic]


def numbers(value: Array, dtype: Literal["bf16"] | None, what: str) -> Numbers:
    """Return numbers that no one else will change: arrays are copied.

    Args:
        value: array or tensor.
        dtype: "bf16" where `value` holds its bits as uint16.
        what: how messages begin.

    Raises:
        InvalidInput: no file holds that datatype.
    """
    if not isinstance(value, np.ndarray) and hasattr(value, "detach"):
        return _from_torch(value)
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":  # of ml_dtypes, which need not be here
        return Numbers("BF16", array.view(np.uint16).copy())
    if dtype == "bf16":
        if array.dtype != np.uint16:
            raise InvalidInput(f"{what}: expected the bits of bf16 as uint16, found {array.dtype}")
        return Numbers("BF16", array.copy())
    little = array.dtype.newbyteorder("<")
    if little not in _TYPES:
        raise InvalidInput(f"{what}: no file holds {array.dtype}")
    return Numbers(_TYPES[little], array.astype(little, order="C", copy=True))


def keys(value: Keys, what: str) -> tuple[NDArray[np.int64], Literal["int64", "uint64"]]:
    """Return a copy of keys as their 64 bits, and how they are to be written.

    Raises:
        InvalidInput: they are not integers in one axis.
    """
    if not isinstance(value, np.ndarray) and not isinstance(value, Sequence):
        found = _from_torch(value).array
    else:
        found = np.asarray(value)
    if found.size == 0 and found.ndim == 1:
        return np.empty(0, np.int64), "int64"
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InvalidInput(
            f"{what}: keys: expected integers in one axis, found {found.dtype} {list(found.shape)}"
        )
    if found.dtype == np.uint64:
        return found.astype("<u8", copy=True).view(np.int64), "uint64"
    return found.astype(np.int64, copy=True), "int64"


def first_not_finite(found: Numbers) -> int | None:
    """Return the first index along the first axis that has a NaN or an infinity; None: none has."""
    if found.dtype not in ("F64", "F32", "F16", "BF16") or not found.array.size:
        return None
    flat = found.array.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        if found.dtype == "BF16":
            bad = (part.astype(np.uint16) & np.uint16(_BF16_EXPONENT)) == _BF16_EXPONENT
        else:
            bad = ~np.isfinite(part)
        if bad.any():
            position = start + int(np.argmax(bad))
            return position // max(1, flat.size // max(1, found.array.shape[0] or 1))
    return None


def widen(found: Numbers) -> NDArray[np.float32]:
    """Return rows of F32, F16 or BF16 as float32, which holds each of their numbers."""
    if found.dtype == "BF16":
        return (found.array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return found.array.astype(np.float32)


def _from_torch(value: TorchTensor) -> Numbers:
    torch = importlib.import_module("torch")  # it is there, or there would be no tensor of it
    tensor = value.detach().cpu().contiguous()
    if getattr(tensor, "dtype", None) == torch.bfloat16:
        # NumPy has no such type: the bits come as integers. The protocol leaves `view` out, since
        # only this one kind of tensor needs it.
        bits: NDArray[np.generic] = tensor.view(torch.int16).numpy()  # type: ignore[attr-defined]
        return Numbers("BF16", bits.view(np.uint16).copy())
    return numbers(tensor.numpy(), None, "tensor")
