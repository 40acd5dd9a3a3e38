"""Compiled checks of one model's inputs: names, datatypes, shapes, rows.

A front door asks `find` per tensor before it touches the data, then `order` once per request.
Nothing here allocates by a size the caller chose.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.models import DenseModel
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

__all__ = ["InputRules"]


class InputRules:
    """Checks for the inputs of one model. Immutable and safe from any thread.

    Attributes:
        specs: declared inputs, in order.
    """

    def __init__(self, model: DenseModel) -> None:
        self.specs = model.inputs
        self._index: Mapping[str, int] = {spec.name: i for i, spec in enumerate(model.inputs)}
        self._row_axes = model.rows.input_axes
        self._first_row_input = next(
            (i for i, axis in enumerate(self._row_axes) if axis is not None), None
        )

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

    def order(
        self, arrays: Mapping[str, NDArray[np.generic]]
    ) -> tuple[tuple[NDArray[np.generic], ...], int]:
        """Put named arrays into the model's order and count the rows.

        Args:
            arrays: input name -> array, each already accepted by `find`.

        Returns:
            The arrays in order, and the number of rows: the common size of the row axes; for a
            model without any, 1.

        Raises:
            InvalidInput: an input is missing, or inputs disagree on the number of rows.
        """
        try:
            ordered = tuple([arrays[spec.name] for spec in self.specs])
        except KeyError as missing:
            raise InvalidInput(
                f"input {missing.args[0]!r} is missing; expected {self._expected_names()}"
            ) from None
        first = self._first_row_input
        if first is None:
            return ordered, 1
        rows = -1
        for array, axis in zip(ordered, self._row_axes, strict=True):
            if axis is None:
                continue
            size = array.shape[axis]
            if rows < 0:
                rows = size
            elif size != rows:
                raise InvalidInput(self._rows_text(ordered))
        return ordered, rows

    def _expected_names(self) -> str:
        names = [spec.name for spec in self.specs]
        shown = ", ".join(repr(name) for name in names[:20])
        return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"

    def _shape_text(self, spec: TensorSpec, shape: Sequence[int]) -> str:
        return (
            f"input {spec.name!r}: expected shape {list(spec.shape)} (-1 = any), "
            f"got {list(shape)[:20]}"
        )

    def _rows_text(self, ordered: tuple[NDArray[np.generic], ...]) -> str:
        counts = ", ".join(
            f"{spec.name!r} has {array.shape[axis]}"
            for spec, array, axis in zip(self.specs, ordered, self._row_axes, strict=True)
            if axis is not None
        )
        return f"inputs disagree on the number of rows: {counts[:1000]}"
