"""Arrays that lie in a file as plain packed numbers: read in pieces, never mapped.

Mapped files end the process where somebody cuts them short; reading them is an error message.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.errors import InvalidInput, Unavailable

__all__ = ["PlainArray"]


@dataclass(frozen=True, slots=True)
class PlainArray:
    """Where an array lies, in C order.

    Attributes:
        path: of the file.
        what: how messages name it.
        dtype: of the elements, with their byte order.
        shape: at least one axis.
        offset: of the first element, in bytes.
    """

    path: Path
    what: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int

    @property
    def rows(self) -> int:
        """Size of axis 0."""
        return self.shape[0]

    def read(self, begin: int, end: int) -> NDArray[np.generic]:
        """Return rows `begin` to `end` as an array of the caller's own, little-endian.

        Raises:
            InvalidInput: the file ends before them.
            Unavailable: it cannot be read.
        """
        row_items = math.prod(self.shape[1:])
        offset = self.offset + begin * row_items * self.dtype.itemsize
        try:
            flat = np.fromfile(self.path, self.dtype, (end - begin) * row_items, offset=offset)
        except OSError as error:
            raise Unavailable(f"{self.what}: cannot be read: {error.strerror}") from None
        if flat.size != (end - begin) * row_items:
            raise InvalidInput(f"{self.what}: the file ends before row {end}; copy it again")
        native = flat.astype(self.dtype.newbyteorder("<"), copy=False)
        return native.reshape(end - begin, *self.shape[1:])
