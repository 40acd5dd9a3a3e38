"""From the elements of a tensor of ids to rows of a table, for each operator that reads a table."""

from dataclasses import replace
from typing import Final

import numpy as np

from anabranch_graph_opt.placement.found import FoundLookup
from anabranch_graph_opt.placement.id_grids import IdGrid, IdRun, joined_runs

__all__ = ["ELEMENTS_DIFFER", "of_table_rows"]

ELEMENTS_DIFFER: Final = (
    "it reads single elements of the table (GatherElements) that are not proven to be whole rows; "
    "export it as an embedding (Gather)"
)


def of_table_rows(found: FoundLookup, grid: IdGrid) -> IdGrid | str:
    """Return the grid with one id for each row that is read, or why there is none.

    Args:
        found: a lookup.
        grid: of all elements of its tensor of ids.
    """
    if found.form == "gather":
        return grid
    if grid.row_axis is not None and grid.row_axis == _rank(grid) - 1:
        return "its coordinates are laid out in a way that is not followed"
    if found.form == "gather_nd":
        # The last axis, of size 1, is the coordinate.
        return replace(grid, shape=grid.shape[:-1])
    return _of_equal_columns(found, grid)


def _rank(grid: IdGrid) -> int:
    """Return the number of axes of the tensor of ids."""
    return len(grid.shape) + (grid.row_axis is not None and grid.block == 1)


def _of_equal_columns(found: FoundLookup, grid: IdGrid) -> IdGrid | str:
    """Read whole rows where each row of the ids is one id, once for every column of the table."""
    assert found.table.const_value is not None
    dim = found.table.const_value.shape.numpy()[1]
    elements = [
        IdRun(run.source, (column, column + 1), run.cast, run.add)
        for run in grid.runs
        for column in range(*run.columns)
    ]
    if not grid.shape or grid.shape[-1] != dim:
        return ELEMENTS_DIFFER
    numbers = {element: index for index, element in enumerate(dict.fromkeys(elements))}
    ids = np.array([numbers[element] for element in elements]).reshape(-1, dim)
    if (ids != ids[:, :1]).any():
        return ELEMENTS_DIFFER
    return replace(grid, shape=grid.shape[:-1], runs=joined_runs(elements[::dim]))
