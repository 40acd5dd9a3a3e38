"""Requests that a version is warmed and measured with, as its graph takes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.admission import InputRules
from anabranch_runtime.buffers import aligned_array
from anabranch_runtime.lookup_staging import LookupStaging
from anabranch_runtime.lookups import Lookups
from anabranch_runtime.row_source import RowSource

__all__ = ["Examples", "examples_of"]

Array = NDArray[np.generic]
Inputs = tuple[Array, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Requests, ready to run.

    Attributes:
        requests: of each one array per input of the graph, what lookups fill being filled; and
            its rows.
        look_up: looks up so many rows like those of the requests; None where nothing is.
    """

    requests: Sequence[tuple[Inputs, int]]
    look_up: Callable[[int], None] | None = None


def examples_of(
    examples: Sequence[Mapping[str, Array]],
    rules: InputRules,
    axes: Sequence[int | None],
    source: RowSource | None,
) -> Examples:
    """Admit requests and look up their rows.

    Args:
        examples: input name -> array.
        rules: of the model.
        axes: per input of its graph the axis that carries the rows.
        source: where rows are read; None where the model looks none up.

    Raises:
        InvalidInput: one is not what the model takes, or a key is missing that must not be.
        TooLarge: users of one, repeated for every row, would be too much.
    """
    requests = [rules.order(example) for example in examples]
    if source is None:
        return Examples(requests)
    sample = next((request for request in requests if request[1]), None)
    return Examples(
        [(_looked_up(source, inputs, rows), rows) for inputs, rows in requests],
        None if sample is None else _repeating(source, axes, *sample),
    )


def _looked_up(source: RowSource, inputs: Inputs, rows: int) -> Inputs:
    lookups = source.lookups
    staged = _staging(lookups, rows)
    if rows:
        LookupStaging(lookups).look_up(source, [(inputs, rows)], rows, staged)
    graph = dict(zip(lookups.buffers, staged, strict=True))
    graph.update(zip(lookups.dense, inputs, strict=False))  # features come behind the dense ones
    return tuple([graph[index] for index in range(len(graph))])


def _repeating(
    source: RowSource, axes: Sequence[int | None], inputs: Inputs, rows: int
) -> Callable[[int], None]:
    """Return what looks up as many rows as it is told, those of one request by turns."""
    lookups = source.lookups
    staging = LookupStaging(lookups)
    staged: dict[int, list[Array]] = {}

    def look_up(wanted: int) -> None:
        if wanted not in staged:
            staged[wanted] = _staging(lookups, wanted)
        whole, rest = divmod(wanted, rows)
        requests = [(inputs, rows)] * whole
        if rest:
            requests.append((lookups.cut(inputs, axes, (0, rest, rows))[0], rest))
        staging.look_up(source, requests, wanted, staged[wanted])

    return look_up


def _staging(lookups: Lookups, rows: int) -> list[Array]:
    return [
        aligned_array((rows, buffer.columns), np.float32 if buffer.dtype == "f32" else np.float16)
        for buffer in lookups.plan.buffers
    ]
