"""Zeroed arrays on a 64-byte boundary: what executors stage inputs and outputs in.

Invariant: the memory belongs to the array's base and is freed once, with the last view of it.
"""

import math
import sys

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anabranch_runtime import _native

__all__ = ["aligned_array"]


def aligned_array(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
    """Return a C-contiguous array of zeros whose data starts on a multiple of 64 bytes.

    Exactly the bytes of the array are allocated, and all of their pages are touched, so that the
    first write into it does not fault. Any thread may call this.

    Args:
        shape: axes, as for `numpy.zeros`.
        dtype: any fixed-width type.

    Raises:
        ValueError: a negative axis, or more bytes than an address can tell apart.
        TypeError: the dtype holds Python objects.
        MemoryError: the memory is not to be had.
    """
    axes = (shape,) if isinstance(shape, int) else tuple(shape)
    element = np.dtype(dtype)
    if element.hasobject:
        raise TypeError(f"an aligned array cannot hold Python objects (dtype {element})")
    size_bytes = math.prod(axes) * element.itemsize
    if any(axis < 0 for axis in axes) or size_bytes > sys.maxsize:
        raise ValueError(f"no array can have shape {axes} of {element}")
    try:
        block = _native.aligned_zeros(size_bytes)
    except MemoryError:
        raise MemoryError(f"cannot allocate {size_bytes} bytes for {axes} of {element}") from None
    return block.view(element).reshape(axes)
