"""What a backend must know of a model to run it: files, tensors, how rows flow through it."""

from dataclasses import dataclass
from pathlib import Path

from anabranch_runtime.cut_models import CutModel
from anabranch_runtime.lookups import Lookups
from anabranch_wire.tensors import TensorSpec

__all__ = ["DenseModel", "RowLayout", "part_model"]


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Which axes carry the rows of a request, and whether rows may meet other requests' rows.

    Attributes:
        independent: proven (and checked) that each row's answer depends on that row alone. Only
            then are requests merged, split or padded.
        min_rows: smallest number of rows the graph runs with; smaller requests are padded by
            repeating their last row. 1 unless `independent`.
        input_axes: per input the axis that carries the rows, None where there is none.
        output_axes: per output the same.
        reason: why rows are not independent, in words for a modeller; empty if they are.
        splittable: whether a request may be cut. Not where the graph picks rows by their data: a
            part in which it picks none may fail where the whole request does not.
    """

    independent: bool
    min_rows: int
    input_axes: tuple[int | None, ...]
    output_axes: tuple[int | None, ...]
    reason: str = ""
    splittable: bool = True

    def __post_init__(self) -> None:
        if self.min_rows < 1:
            raise ValueError(f"min_rows {self.min_rows}: expected at least 1")
        if not self.independent and self.min_rows != 1:
            raise ValueError("only a model with independent rows may be padded")
        if self.min_rows > 1 and not self.can_pad:
            raise ValueError("padding needs the rows on axis 0")

    @property
    def can_merge(self) -> bool:
        """Whether requests may share a batch: rows independent and on axis 0 of every tensor."""
        return self.independent and all(axis == 0 for axis in (*self.input_axes, *self.output_axes))

    @property
    def can_split(self) -> bool:
        """Whether a request may be cut: as merging, but inputs without rows repeat."""
        return self.splittable and self.can_pad

    @property
    def can_pad(self) -> bool:
        """Whether rows may be added: independent, on axis 0 of outputs and of inputs with any."""
        return (
            self.independent
            and any(axis == 0 for axis in self.input_axes)
            and all(axis in (0, None) for axis in self.input_axes)
            and all(axis == 0 for axis in self.output_axes)
        )


@dataclass(frozen=True, slots=True)
class DenseModel:
    """A graph ready to be built by a `DenseBackend`.

    Attributes:
        path: the ONNX file; external data lies beside it and was checked to stay there.
        inputs: the graph's own inputs, in its order, without initializers.
        outputs: the graph's outputs, in its order.
        rows: how rows flow through it.
        optimized: whether the file is the optimised form that the backend itself wrote.
        lookups: what fills some of its inputs from tables; None where requests bring all of them.
        cut: what runs instead, where lookups were cut out of the graph; then `path` is the
            original.
    """

    path: Path
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    rows: RowLayout
    optimized: bool = False
    lookups: Lookups | None = None
    cut: CutModel | None = None

    def __post_init__(self) -> None:
        lookups = self.lookups
        if lookups is not None and self.cut is not None:
            raise ValueError("lookups are cut out of a graph or stand beside it, not both")
        if lookups is not None and any(self.rows.input_axes[at] != 0 for at in lookups.buffers):
            raise ValueError("inputs that lookups fill have the rows on axis 0")

    @property
    def request_inputs(self) -> tuple[TensorSpec, ...]:
        """What requests bring: the graph's own inputs, or features for those that are looked up."""
        return self.inputs if self.lookups is None else self.lookups.request_inputs


def part_model(
    path: Path,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    *,
    optimized: bool = False,
) -> DenseModel:
    """Return a graph of a cut model: what its rows do is known of the original."""
    rows = RowLayout(
        independent=False,
        min_rows=1,
        input_axes=(None,) * len(inputs),
        output_axes=(None,) * len(outputs),
    )
    return DenseModel(path, inputs, outputs, rows, optimized)
