"""Copying requests into the inputs of a cut model with a user side: each user once.

A request brings one user for all of its rows, or a user for each. Which of the two is seen from its
arrays: what admission repeated for every row is one row in memory.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Binding, Stage
from anabranch_runtime.cut_engines import CutBinding
from anabranch_runtime.staging import Inputs, fill_rows, stage_alone, stage_together

__all__ = ["stage_batch", "stage_request"]


def stage_request(binding: Binding, inputs: Inputs, rows: int) -> Stage:
    """Stage one request as it came."""
    if not isinstance(binding, CutBinding) or not binding.users:
        return stage_alone(binding, inputs)
    return _stage_users(binding, [(inputs, rows)], rows, None, ())


def stage_batch(
    binding: Binding,
    requests: Sequence[tuple[Inputs, int]],
    axes: Sequence[int | None],
    run_rows: int,
    company: Inputs | None,
) -> Stage:
    """Stage requests one below the other; see `stage_together`.

    Args:
        binding: of the executor.
        requests: inputs and rows of at least one.
        axes: per input 0, or None where it has no rows.
        run_rows: at least the rows of all requests and of the company.
        company: rows that go along with every batch.
    """
    if not isinstance(binding, CutBinding) or not binding.users:
        return stage_together(binding, [inputs for inputs, _ in requests], axes, run_rows, company)
    return _stage_users(binding, requests, run_rows, company, axes)


def _stage_users(
    binding: CutBinding,
    requests: Sequence[tuple[Inputs, int]],
    run_rows: int,
    company: Inputs | None,
    axes: Sequence[int | None],
) -> Stage:
    users = binding.users
    parts = list(requests)
    if company is not None:
        parts.append((company, len(company[min(users)])))
    counts = [_users_of(inputs, rows, users) for inputs, rows in parts]
    total = max(sum(counts), min(run_rows, 1))  # rows that pad a batch without any have a user too
    first = parts[0][0]
    shapes = []
    for at, array in enumerate(first):
        if at in users:
            shapes.append((total, *array.shape[1:]))
        elif not axes or axes[at] == 0:
            shapes.append((run_rows, *array.shape[1:]))
        else:
            shapes.append(array.shape)
    stage = binding.stage(tuple(shapes))
    for at, staged in enumerate(stage.inputs):
        if at in users:
            kept = [part[0][at][:count] for part, count in zip(parts, counts, strict=True)]
            fill_rows(staged, kept)
        elif axes and axes[at] is None:
            staged[...] = first[at]
        else:
            fill_rows(staged, [inputs[at] for inputs, _ in parts])
    assert stage.index is not None
    _fill_index(stage.index, [rows for _, rows in parts], counts)
    return stage


def _users_of(inputs: Inputs, rows: int, users: frozenset[int]) -> int:
    """Return how many users a request has: one, or one per row."""
    if rows <= 1:
        return rows
    return 1 if all([inputs[at].strides[0] == 0 for at in users]) else rows


def _fill_index(index: NDArray[np.int64], rows: Sequence[int], users: Sequence[int]) -> None:
    """Write the user of each row; rows that pad the batch have the last one."""
    at = user = 0
    for count, own in zip(rows, users, strict=True):
        if own == 1:
            index[at : at + count] = user
        else:
            index[at : at + count] = np.arange(user, user + own)
        at += count
        user += own
    index[at:] = max(user - 1, 0)
