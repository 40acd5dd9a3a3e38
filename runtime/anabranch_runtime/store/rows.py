"""Rows on their way into a store: checked arrays in pieces, as the native writers take them.

Invariant: what is made beside the caller's arrays stays within a few MiB, however long they are.
"""

from collections.abc import Iterator
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime import _native
from anabranch_wire.errors import InvalidInput

__all__ = [
    "KeyKind",
    "Keys",
    "RowType",
    "bf16_pieces",
    "contiguous_keys",
    "float_pieces",
    "int8_pieces",
]

RowType = Literal["f32", "f16", "bf16", "int8"]
"""How numbers lie in a table."""

KeyKind = Literal["hashed", "dense_id"]
"""`hashed`: any 64-bit keys; `dense_id`: the keys are 0..rows-1."""

Keys = NDArray[np.uint64 | np.int64]
"""Keys of rows; a signed key is the unsigned one of the same bits."""

_PIECE_NUMBERS: Final = 1 << 20


def contiguous_keys(keys: Keys) -> Keys:
    """Return the keys one after another."""
    return np.ascontiguousarray(keys)


def float_pieces(
    keys: Keys | None, values: NDArray[np.float32] | NDArray[np.float16]
) -> Iterator[tuple[Keys | None, NDArray[np.float32]]]:
    """Yield rows as contiguous float32, with their keys; whole where they are that already.

    Args:
        keys: (n,), or None for dense ids.
        values: (n, dim).

    Raises:
        InvalidInput: the values are of another type or shape.
    """
    _check_rows("values", keys, values)
    if values.dtype == np.float32 and values.flags.c_contiguous:
        yield _keys(keys, slice(None)), values.astype(np.float32, copy=False)
        return
    if values.dtype not in (np.float32, np.float16):
        raise InvalidInput(f"values: expected float32 or float16, got {values.dtype}")
    for piece in _pieces(values):
        yield _keys(keys, piece), np.ascontiguousarray(values[piece], np.float32)


def bf16_pieces(
    keys: Keys | None, bits: NDArray[np.uint16]
) -> Iterator[tuple[Keys | None, NDArray[np.float32]]]:
    """Yield bfloat16 rows, given as the upper halves of float32, as the float32 they are.

    Args:
        keys: (n,), or None for dense ids.
        bits: (n, dim).

    Raises:
        InvalidInput: the bits are of another type or shape.
    """
    _check_rows("bits", keys, bits)
    if bits.dtype != np.uint16:
        raise InvalidInput(f"bits: expected uint16, got {bits.dtype}")
    for piece in _pieces(bits):
        yield _keys(keys, piece), (bits[piece].astype(np.uint32) << 16).view(np.float32)


def int8_pieces(
    keys: Keys | None,
    values: NDArray[np.int8],
    scale: NDArray[np.float16],
    bias: NDArray[np.float16],
) -> Iterator[tuple[Keys | None, NDArray[np.uint8]]]:
    """Yield rows as they lie in an int8 table: docs/formats.md, "Rows".

    Args:
        keys: (n,), or None for dense ids.
        values: (n, dim).
        scale: (n,), finite.
        bias: (n,), finite.

    Raises:
        InvalidInput: an array is of another type or shape, or a scale or bias is not finite.
    """
    _check_rows("values", keys, values)
    if values.dtype != np.int8:
        raise InvalidInput(f"values: expected int8, got {values.dtype}")
    for what, numbers in (("scale", scale), ("bias", bias)):
        if numbers.dtype != np.float16 or numbers.shape != values.shape[:1]:
            raise InvalidInput(
                f"{what}: expected float16 of shape ({len(values)},), "
                f"got {numbers.dtype} of shape {numbers.shape}"
            )
        if not np.isfinite(numbers).all():
            raise InvalidInput(f"{what}: expected finite numbers")
    dim = values.shape[1]
    stride = _native.row_stride("int8", dim)
    for piece in _pieces(values):
        rows = np.zeros((len(values[piece]), stride), np.uint8)
        rows[:, 0:2] = _bytes(scale[piece])
        rows[:, 2:4] = _bytes(bias[piece])
        rows[:, 4 : 4 + dim] = values[piece].view(np.uint8)
        yield _keys(keys, piece), rows


def _bytes(numbers: NDArray[np.float16]) -> NDArray[np.uint8]:
    """Bytes (n, 2) of numbers (n,), least significant first."""
    return np.ascontiguousarray(numbers, "<f2").view(np.uint8).reshape(-1, 2)


def _keys(keys: Keys | None, piece: slice) -> Keys | None:
    return None if keys is None else contiguous_keys(keys[piece])


def _pieces(values: NDArray[np.generic]) -> Iterator[slice]:
    """Cut (n, dim) numbers; at least one piece, so that empty arrays are checked as others are."""
    step = max(1, _PIECE_NUMBERS // max(1, values.shape[1]))
    for begin in range(0, max(1, len(values)), step):
        yield slice(begin, begin + step)


def _check_rows(what: str, keys: Keys | None, values: NDArray[np.generic]) -> None:
    if values.ndim != 2:
        raise InvalidInput(f"{what}: expected shape (rows, dim), got {values.shape}")
    if keys is not None and keys.shape != values.shape[:1]:
        raise InvalidInput(f"{keys.shape} keys for {what} of shape {values.shape}")
