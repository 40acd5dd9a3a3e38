"""Compiled checks of one model's inputs: names, datatypes, shapes, rows.

A front door asks `find` per tensor before it touches the data, then `order` once per request.
Nothing here allocates by a size the caller chose; user rows that were sent once become views that
repeat them for every row, within a bound on what they amount to.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.tensors import TensorSpec

__all__ = ["InputRules"]

_TEXT_BYTES: Final = 64


class InputRules:
    """Checks for the inputs of one model. Immutable and safe from any thread.

    Attributes:
        specs: declared inputs, in order.
    """

    def __init__(
        self,
        specs: tuple[TensorSpec, ...],
        row_axes: tuple[int | None, ...],
        user_inputs: Collection[str] = (),
        max_repeated_bytes: int = 0,
    ) -> None:
        """Compile the checks.

        Args:
            specs: declared inputs, in order.
            row_axes: per input the axis that carries the rows, None where there is none.
            user_inputs: inputs that may hold one user for all rows of a request; each has its rows
                on axis 0.
            max_repeated_bytes: of the user inputs of one request, once repeated for its rows.

        Raises:
            ValueError: a user input is none of the model, or has no rows on axis 0.
        """
        self.specs = specs
        self._index: Mapping[str, int] = {spec.name: i for i, spec in enumerate(specs)}
        self._row_axes = row_axes
        self._users = frozenset(user_inputs)
        self._max_repeated_bytes = max_repeated_bytes
        rowed = {spec.name for spec, axis in zip(specs, row_axes, strict=True) if axis == 0}
        if not self._users <= rowed:
            raise ValueError(f"user inputs {sorted(self._users - rowed)} have no rows on axis 0")

    def find(self, name: str, datatype: str, shape: Sequence[int]) -> TensorSpec:
        """Return the declared input that a sent tensor is for.

        Raises:
            InvalidInput: no such input, another datatype, or a shape that the input cannot have.
        """
        index = self._index.get(name)
        if index is None:
            raise InvalidInput(
                f"input {name[:200]!r}: no such input; expected {self._expected_names()}"
            )
        spec = self.specs[index]
        if datatype != spec.datatype:
            raise InvalidInput(
                f"input {name!r}: expected datatype {spec.datatype}, got {datatype[:40]!r}"
            )
        declared = spec.shape
        if len(shape) != len(declared):
            raise InvalidInput(self._shape_text(spec, shape))
        for size, wanted in zip(shape, declared, strict=True):
            if size < 0 or (size != wanted and wanted != -1):
                raise InvalidInput(self._shape_text(spec, shape))
        return spec

    def rows_in(self, name: str, shape: Sequence[int]) -> int:
        """Return the rows of a tensor that `find` accepted; 1 where it has no row axis."""
        axis = self._row_axes[self._index[name]]
        return 1 if axis is None else shape[axis]

    def order(
        self, arrays: Mapping[str, NDArray[np.generic]]
    ) -> tuple[tuple[NDArray[np.generic], ...], int]:
        """Put named arrays into the model's order and count the rows.

        Args:
            arrays: input name -> array, each already accepted by `find`.

        Returns:
            The arrays in order, and the number of rows: the common size of the row axes; for a
            model without any, 1. A user input of one row among inputs of more, or of none, comes
            back as a read-only view that repeats it.

        Raises:
            InvalidInput: an input is missing, or inputs disagree on the number of rows.
            TooLarge: users repeated for every row would be too much.
        """
        try:
            ordered = tuple([arrays[spec.name] for spec in self.specs])
        except KeyError as missing:
            raise InvalidInput(
                f"input {missing.args[0]!r} is missing; expected {self._expected_names()}"
            ) from None
        rows = -1
        for array, axis in zip(ordered, self._row_axes, strict=True):
            if axis is None:
                continue
            size = array.shape[axis]
            if rows < 0:
                rows = size
            elif size != rows:
                return self._repeat_users(ordered)
        return ordered, 1 if rows < 0 else rows

    def is_repeated(self, name: str, size: int, rows: int) -> bool:
        """Whether an input with `size` on axis 0 is one user for all of `rows` rows."""
        return size == 1 and rows != 1 and name in self._users

    def _repeat_users(
        self, ordered: tuple[NDArray[np.generic], ...]
    ) -> tuple[tuple[NDArray[np.generic], ...], int]:
        """Let the users of a request whose inputs differ in rows stand for all of its rows."""
        sizes = {
            array.shape[axis]
            for spec, array, axis in zip(self.specs, ordered, self._row_axes, strict=True)
            if axis is not None and not (array.shape[axis] == 1 and spec.name in self._users)
        }
        if len(sizes) != 1:
            raise InvalidInput(self._rows_text(ordered))
        rows = sizes.pop()
        repeated: list[NDArray[np.generic]] = []
        total_bytes = 0
        for spec, array in zip(self.specs, ordered, strict=True):
            if array.ndim and self.is_repeated(spec.name, len(array), rows):
                total_bytes += rows * _bytes_of(array)
                array = np.broadcast_to(array, (rows, *array.shape[1:]))
            repeated.append(array)
        if total_bytes > self._max_repeated_bytes:
            raise TooLarge(
                f"user inputs repeated for {rows} rows are {total_bytes} bytes: at most "
                f"{self._max_repeated_bytes} are allowed"
            )
        return tuple(repeated), rows

    def _expected_names(self) -> str:
        names = [spec.name for spec in self.specs]
        shown = ", ".join(repr(name) for name in names[:20])
        return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"

    def _shape_text(self, spec: TensorSpec, shape: Sequence[int]) -> str:
        expected = f"input {spec.name!r}: expected shape {spec.shape_text}"
        if min(shape, default=0) < 0:
            expected += " with the sizes that were sent, each at least 0"
        return f"{expected}, got {list(shape)[:20]}"

    def _rows_text(self, ordered: tuple[NDArray[np.generic], ...]) -> str:
        counts = ", ".join(
            f"{spec.name!r} has {array.shape[axis]}"
            for spec, array, axis in zip(self.specs, ordered, self._row_axes, strict=True)
            if axis is not None
        )
        users = f"; {', '.join(sorted(self._users))} may have 1" if self._users else ""
        return f"inputs disagree on the number of rows: {counts[:1000]}{users[:1000]}"


def _bytes_of(array: NDArray[np.generic]) -> int:
    """Bytes that a backend needs for `array`; each string becomes an object of its own."""
    if array.dtype != np.object_:
        return array.nbytes
    return array.size * _TEXT_BYTES + sum(map(len, array.ravel().tolist()))
