"""Heads: outputs of the graph as the numbers that answers and scores are made of."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.calibration import calibrated, check_calibration
from anabranch_runtime.ranking.plans import CalibrationPlan
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

__all__ = ["Head"]


@dataclass(frozen=True, slots=True)
class Head:
    """One output of the graph; immutable, for any thread.

    Attributes:
        spec: of the output.
        calibration: its correction, if any.
    """

    spec: TensorSpec
    calibration: CalibrationPlan | None = None

    def __post_init__(self) -> None:
        if self.calibration is not None:
            check_calibration(self.spec.name, self.calibration)

    @property
    def is_numeric(self) -> bool:
        """Whether it has numbers at all."""
        return self.spec.datatype != "BYTES"

    @property
    def may_be_single(self) -> bool:
        """Whether it may have one number for each row: [N] or [N, 1]."""
        shape = self.spec.shape
        return len(shape) == 1 or (len(shape) == 2 and shape[1] in (-1, 1))

    def numbers(self, output: NDArray[np.generic], rows: int) -> NDArray[np.float64]:
        """Return its calibrated numbers.

        The caller sees to it that NumPy does not warn (`numpy.errstate`).

        Args:
            output: of the graph, (rows, ...).
            rows: candidates.

        Returns:
            (rows, ...); of one number a row, (rows,).

        Raises:
            InvalidInput: it has another number of rows.
        """
        if output.ndim == 0 or len(output) != rows:
            raise InvalidInput(
                f"output {self.spec.name!r}: expected {rows} rows, one for each candidate, got "
                f"shape {list(output.shape)}"
            )
        if self.spec.datatype == "BF16":  # their bits: the upper half of a float32
            output = (output.astype(np.uint32) << 16).view(np.float32)
        values = output.astype(np.float64)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values.reshape(rows)
        return values if self.calibration is None else calibrated(self.calibration, values)

    def single(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what `numbers` made, where that is one number a row: (rows,).

        Raises:
            InvalidInput: it is not.
        """
        if values.ndim != 1:
            raise InvalidInput(
                f"output {self.spec.name!r}: expected one number for each candidate to make the "
                f"score of, got shape {list(values.shape)}"
            )
        return values

    def nothing(self) -> NDArray[np.float64]:
        """Return its numbers for no candidates, (0, ...); an axis of any size has none."""
        sizes = [max(size, 0) for size in self.spec.shape[1:]]
        return np.empty((0,) if sizes == [1] else (0, *sizes), np.float64)
