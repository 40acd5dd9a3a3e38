"""Hash functions that make keys of strings and integers, over many values at once.

What they compute is specified in docs/features.md, with vectors.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime import _native
from anabranch_runtime.ranking.plans import HashFunction

__all__ = ["hash_integers", "hash_strings"]

_UINT64: Final = 1 << 64


def hash_strings(
    function: HashFunction,
    strings: Iterable[str | bytes],
    *,
    seed: int = 0,
    num_buckets: int = 0,
) -> NDArray[np.int64]:
    """Return a key of each string. Releases the GIL while it hashes.

    Args:
        function: the hash.
        strings: each is hashed as its bytes, in UTF-8.
        seed: of functions that take one; murmur3 takes it modulo 2^32.
        num_buckets: keys are the unsigned hash modulo this; 0 keeps all 64 bits as an int64.

    Returns:
        (strings,) int64, owned by the caller.

    Raises:
        ValueError: there is no such function, or a number is not one of 64 bits.
    """
    parts = [each.encode() if isinstance(each, str) else each for each in strings]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    _check(seed, num_buckets)
    return _native.hash_strings(function, b"".join(parts), offsets, seed, num_buckets)


def hash_integers(
    function: HashFunction,
    integers: NDArray[np.integer],
    *,
    seed: int = 0,
    num_buckets: int = 0,
) -> NDArray[np.int64]:
    """Return a key of each integer, a hash of its decimal text. Releases the GIL.

    Args:
        function: the hash.
        integers: (n,), each within int64.
        seed: as for `hash_strings`.
        num_buckets: as for `hash_strings`.

    Returns:
        (n,) int64, owned by the caller.

    Raises:
        ValueError: there is no such function, a number is not one of 64 bits, or `integers` has
            another shape or type.
    """
    if integers.ndim != 1 or not np.can_cast(integers.dtype, np.int64):
        raise ValueError(
            f"integers: expected one axis of int64, got {integers.ndim} of {integers.dtype}"
        )
    _check(seed, num_buckets)
    values = np.ascontiguousarray(integers, np.int64)
    return _native.hash_integers(function, values, seed, num_buckets)


def _check(seed: int, num_buckets: int) -> None:
    for name, value in (("seed", seed), ("num_buckets", num_buckets)):
        if not 0 <= value < _UINT64:
            raise ValueError(f"{name}: {value}; expected a number from 0 to 2^64 - 1")
