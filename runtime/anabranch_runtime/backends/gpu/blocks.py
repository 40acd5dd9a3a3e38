"""Several tensors in one block of memory, so that one copy brings all of them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

__all__ = ["BlockLayout", "DeviceTensor", "PlacedTensor"]

_ALIGNMENT: Final = 256
"""Bytes: what a device's own allocations are aligned to, and vectorised kernels rely on."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor in a block.

    Attributes:
        name: of the tensor.
        dtype: of its elements.
        shape: fixed.
        offset: bytes from the beginning of the block.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: Shape
    offset: int

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.count * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """A tensor in a device's memory; whoever owns the block keeps it alive.

    Attributes:
        name: of the tensor.
        dtype: of its elements.
        shape: fixed.
        address: of the first element, on the device.
    """

    name: str
    dtype: np.dtype[np.generic]
    shape: Shape
    address: int


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Where tensors lie in a block.

    Attributes:
        tensors: in rising order of their offsets.
        nbytes: of the block.
    """

    tensors: tuple[PlacedTensor, ...]
    nbytes: int

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, np.dtype[np.generic], Shape]]) -> "BlockLayout":
        """Place tensors, given as name, type and shape, one behind the other."""
        placed: list[PlacedTensor] = []
        offset = 0
        for name, dtype, shape in tensors:
            tensor = PlacedTensor(name, dtype, shape, offset)
            placed.append(tensor)
            offset = -(-(offset + tensor.nbytes) // _ALIGNMENT) * _ALIGNMENT
        return cls(tuple(placed), offset)

    def at(self, address: int) -> tuple[DeviceTensor, ...]:
        """Return the tensors of a block that begins at `address`."""
        return tuple(
            [
                DeviceTensor(placed.name, placed.dtype, placed.shape, address + placed.offset)
                for placed in self.tensors
            ]
        )
