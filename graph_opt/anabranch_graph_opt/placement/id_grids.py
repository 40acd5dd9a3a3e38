"""Ids of a lookup as the plan can say them: which columns of which input, cast, and shifted.

A tensor of ids holds, for each row of the batch, a fixed grid of ids. Where every one of them is
one element of the same row of a graph input, cast to an integer and shifted by a constant, the
lookup needs no arithmetic of the graph at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.placement.id_elements import Element, IdElements
from anabranch_graph_opt.row_axes import RowAxes

__all__ = ["GridFinder", "IdGrid", "IdRun", "joined_runs"]


@dataclass(frozen=True, slots=True)
class IdRun:
    """Ids side by side in one input.

    Attributes:
        source: name of a graph input, or of an output of the prelude.
        columns: half-open range of the elements of one row of the source, in row-major order.
        cast: `truncate` where the source holds floats.
        add: constant that is added to each.
    """

    source: str
    columns: tuple[int, int]
    cast: Literal["none", "truncate"] = "none"
    add: int = 0

    @property
    def length(self) -> int:
        """Number of ids of a row."""
        return self.columns[1] - self.columns[0]


@dataclass(frozen=True, slots=True)
class IdGrid:
    """Ids of one lookup.

    Attributes:
        row_axis: of the tensor of ids; None: it is the same for all rows of a request.
        block: entries of that axis for each row, side by side; 1 where it counts rows alone.
        shape: of that tensor without the rows: a block of more than 1 stays as an axis.
        runs: ids of one row in row-major order of `shape`; their lengths add up to its product.
    """

    row_axis: int | None
    block: int
    shape: tuple[int, ...]
    runs: tuple[IdRun, ...]


_ROWS: Final = (5, 7)
"""Rows of the batches that are compared: two sizes, so that a fixed axis is not taken for rows."""


class GridFinder:
    """Says ids of one model as grids; used by one thread.

    Args:
        model: in normal form.
        axes: what axis 0 of its inputs counts.
    """

    def __init__(self, model: ir.Model, axes: RowAxes) -> None:
        self._batches = [IdElements(model, axes, rows) for rows in _ROWS]

    def find(self, ids: ir.Value, *, is_float: bool = False) -> IdGrid | None:
        """Return the grid of a tensor of ids, or of floats; None where the plan cannot say it."""
        found = [batch.of(ids, is_float=is_float) for batch in self._batches]
        shapes = [labels.array.shape for labels in found if labels is not None]
        if len(shapes) != len(_ROWS):
            return None
        rows = _row_axis(shapes)
        if rows is None:
            return None
        axis, block = rows
        grids = [
            _of_rows(batch, labels.array, axis, count)
            for batch, labels, count in zip(self._batches, found, _ROWS, strict=True)
            if labels is not None
        ]
        first = grids[0]
        if first is None or any(grid != first for grid in grids):
            return None
        shape = list(shapes[0])
        if axis is not None:
            shape[axis : axis + 1] = [block] if block > 1 else []
        return IdGrid(axis, block, tuple(shape), joined_runs([_run_of(each) for each in first]))


def _row_axis(shapes: Sequence[tuple[int, ...]]) -> tuple[int | None, int] | None:
    """Return the axis that grows with the rows, and its entries per row; None where several do."""
    if len({len(shape) for shape in shapes}) != 1:
        return None
    varying = [
        index for index, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1
    ]
    if not varying:
        return None, 1
    axis = varying[0]
    block = shapes[0][axis] // _ROWS[0]
    fits = all(shape[axis] == block * rows for shape, rows in zip(shapes, _ROWS, strict=True))
    return (axis, block) if len(varying) == 1 and block and fits else None


def _of_rows(
    batch: IdElements, labels: NDArray[np.int64], axis: int | None, rows: int
) -> list[Element] | None:
    """Return the elements of any row, row 0 written; None where rows differ in more than that."""
    if axis is None:
        elements = [batch.element(label) for label in labels.reshape(-1).tolist()]
        return elements if all(element.row == -1 for element in elements) else None
    split = (*labels.shape[:axis], rows, -1, *labels.shape[axis + 1 :])
    by_row = np.moveaxis(labels.reshape(split), axis, 0).reshape(rows, -1)
    lists = [[batch.element(label) for label in row] for row in by_row.tolist()]
    first = lists[0]
    for number, elements in enumerate(lists):
        if elements != [element._replace(row=number) for element in first]:
            return None
    return [element._replace(row=0) for element in first]


def joined_runs(ids: Sequence[IdRun]) -> tuple[IdRun, ...]:
    """Join runs of ids that lie side by side in the same input."""
    runs: list[IdRun] = []
    for run in ids:
        last = runs[-1] if runs else None
        if last is not None and replace(last, columns=(last.columns[1], run.columns[1])) == run:
            runs[-1] = replace(last, columns=(last.columns[0], run.columns[1]))
        else:
            runs.append(run)
    return tuple(runs)


def _run_of(element: Element) -> IdRun:
    columns = (element.column, element.column + 1)
    cast: Literal["none", "truncate"] = "truncate" if element.truncated else "none"
    return IdRun(element.source, columns, cast, element.add)
