"""Optimised models with a user side, run by their definition: users once, lookups in NumPy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from anabranch_graph_opt.graph_files import graph_bytes
from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.parity.reference_lookups import look_up
from anabranch_graph_opt.user_side.splitting import USER_INDEX
from anabranch_runtime.backends.ort_runner import OrtModelRunner

__all__ = ["UserRequest", "run_merged", "run_parts", "run_whole", "tiled"]

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class UserRequest:
    """Candidates of one user.

    Attributes:
        user: inputs that hold the user, one row each.
        rows: all other inputs.
    """

    user: Mapping[str, NDArray[Any]]
    rows: Mapping[str, NDArray[Any]]

    @property
    def count(self) -> int:
        """Number of candidates."""
        return len(next(iter(self.rows.values())))


def tiled(requests: Sequence[UserRequest]) -> Arrays:
    """Return the requests as one batch of the original: every row brings its own user."""
    parts = [
        {
            **{name: np.repeat(array, each.count, axis=0) for name, array in each.user.items()},
            **each.rows,
        }
        for each in requests
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def run_merged(optimized: Optimized, requests: Sequence[UserRequest]) -> Arrays:
    """Compute several requests in one batch of an optimised model."""
    by_row, by_user = tiled(requests), _joined([each.user for each in requests])
    if optimized.prelude is not None:
        by_row |= _run(optimized.prelude, by_row)
    rows, users = sum(each.count for each in requests), len(requests)
    buffers = look_up(_of_side(optimized, "row"), by_row, rows)
    own = [
        look_up(_of_side(optimized, "user"), {k: v[i : i + 1] for k, v in by_user.items()}, 1)
        for i in range(users)
    ]
    for buffer in optimized.buffers:
        if buffer.side == "user":
            by_user[buffer.name] = np.concatenate([each[buffer.name] for each in own])
        else:
            by_row[buffer.name] = buffers[buffer.name]
    index = np.repeat(np.arange(users), [each.count for each in requests])
    return run_parts(optimized.user, optimized.dense, by_user, by_row, index)


def run_parts(
    user: ir.Model | None,
    dense: ir.Model,
    by_user: Mapping[str, NDArray[Any]],
    by_row: Mapping[str, NDArray[Any]],
    index: NDArray[np.int64],
) -> Arrays:
    """Run the user's graph on users, and the other one on rows and what came of the users."""
    once = {} if user is None else _run(user, by_user)
    return _run(dense, {**by_row, **once, USER_INDEX: index})


def run_whole(model: Path | bytes, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Run the original."""
    return cast("Arrays", OrtModelRunner().run(model, arrays))


def _run(model: ir.Model, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    wanted = [str(value.name) for value in model.graph.inputs]
    return run_whole(graph_bytes(model), {name: arrays[name] for name in wanted})


def _of_side(optimized: Optimized, side: str) -> Optimized:
    return replace(
        optimized, lookups=tuple(each for each in optimized.lookups if each.side == side)
    )


def _joined(parts: Sequence[Mapping[str, NDArray[Any]]]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
