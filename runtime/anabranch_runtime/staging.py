"""Copying requests into the arrays that a graph reads: one as it came, or several below others."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Binding, Stage

__all__ = ["fill_rows", "pad_rows", "stage_alone", "stage_together"]

Inputs = tuple[NDArray[np.generic], ...]
"""One array per input of the graph, in its order."""


def stage_alone(binding: Binding, inputs: Inputs) -> Stage:
    """Stage one request as it came."""
    stage = binding.stage(tuple([array.shape for array in inputs]))
    for staged, array in zip(stage.inputs, inputs, strict=True):
        staged[...] = array
    return stage


def stage_together(
    binding: Binding,
    requests: Sequence[Inputs],
    axes: Sequence[int | None],
    run_rows: int,
    company: Inputs | None,
) -> Stage:
    """Stage requests one below the other, with company, padded to `run_rows` rows.

    Inputs without rows are those of the first request.

    Args:
        binding: of the executor.
        requests: at least one.
        axes: per input 0, or None where it has no rows.
        run_rows: at least the rows of all requests and of the company.
        company: rows that go along with every batch.
    """
    first = requests[0]
    stage = binding.stage(
        tuple(
            [
                array.shape if axis is None else (run_rows, *array.shape[1:])
                for array, axis in zip(first, axes, strict=True)
            ]
        )
    )
    for index, (staged, axis) in enumerate(zip(stage.inputs, axes, strict=True)):
        if axis is None:
            staged[...] = first[index]
        else:
            arrays = [inputs[index] for inputs in requests]
            if company is not None:
                arrays.append(company[index])
            fill_rows(staged, arrays)
    return stage


def fill_rows(staged: NDArray[np.generic], arrays: Sequence[NDArray[np.generic]]) -> None:
    """Copy `arrays` one below the other into `staged`; repeat the last row, if any, to its end."""
    rows = sum([len(array) for array in arrays])
    np.concatenate(arrays, out=staged[:rows])
    pad_rows(staged, rows)


def pad_rows(staged: NDArray[np.generic], rows: int) -> None:
    """Repeat the last of the first `rows` rows of `staged`, if there is any, to its end."""
    if len(staged) > rows:
        nothing = b"" if staged.dtype == np.object_ else 0
        staged[rows:] = staged[rows - 1] if rows else nothing
