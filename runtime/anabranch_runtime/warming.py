"""First runs of a version before anybody sees it: executors are warmed, batches are measured."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Binding
from anabranch_runtime.batch_size import (
    BatchCost,
    best_batch_rows,
    best_split_rows,
    measure_costs,
)
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.cut_engines import CutBinding
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.cut_stages import CutStage
from anabranch_runtime.cut_staging import stage_request
from anabranch_runtime.models import RowLayout
from anabranch_runtime.settings import BatchSettings

__all__ = ["BatchPlan", "batch_plan", "company_of", "measured_costs", "warm"]

Inputs = tuple[NDArray[np.generic], ...]
"""One array per input of the graph, in its order; what lookups fill is filled."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How requests of one version meet.

    Attributes:
        mergeable: whether they may share a batch.
        max_rows: rows of a merged batch at most.
        split_rows: rows that are worth an executor of their own; 0 = requests are never cut.
        costs: measured times of batches, by rising rows.
    """

    mergeable: bool
    max_rows: int
    split_rows: int
    costs: Sequence[BatchCost] = field(default=(), compare=False)


def warm(
    binding: Binding,
    requests: Sequence[tuple[Inputs, int]],
    rounds: int,
    cancellation: Cancellation,
    source: CutSource | None = None,
) -> None:
    """Run every request `rounds` times on `binding`; `source` is where a cut model reads rows.

    Raises:
        InvalidInput: the graph cannot compute one.
        Cancelled: it was ended early.
    """
    for inputs, rows in requests:
        for _ in range(rounds):
            cancellation.check()
            _run(binding, inputs, rows, source)


def measured_costs(
    layout: RowLayout,
    binding: Binding,
    requests: Sequence[tuple[Inputs, int]],
    cancellation: Cancellation,
    largest: int | None = None,
    look_up: Callable[[int], object] | None = None,
    source: CutSource | None = None,
) -> tuple[BatchCost, ...]:
    """Measure how long batches of growing sizes take; a quarter of a second of processor time.

    Args:
        layout: how rows flow through the model.
        binding: to measure on.
        requests: inputs and rows of requests that the model computes.
        cancellation: ends measuring early.
        largest: most rows of interest; None = as many as are ever tried.
        look_up: looks up so many rows, where batches do that.
        source: where a cut model reads rows.

    Returns:
        By rising rows; none where no request has a row, or rows may not be added.

    Raises:
        AnabranchError: the graph cannot compute the fewest rows that it is said to run with.
        Cancelled: it was ended early.
    """
    sample = next((inputs for inputs, rows in requests if rows), None)
    if sample is None or not (layout.can_merge or layout.can_pad):
        return ()

    def run(rows: int) -> None:
        cancellation.check()
        if look_up is not None:
            look_up(rows)
        inputs = _resized(sample, layout.input_axes, rows)
        if isinstance(binding, CutBinding):
            inputs = _of_one_user(inputs, binding.users)
        _run(binding, inputs, rows, source)

    costs = measure_costs(
        run,
        smallest=layout.min_rows,
        largest=largest,
        # A version is measured beside traffic, at idle priority: wall time would count others.
        clock=time.thread_time,
    )
    cancellation.check()  # measuring takes any error for the end of what runs
    return tuple(costs)


def batch_plan(settings: BatchSettings, layout: RowLayout, costs: Sequence[BatchCost]) -> BatchPlan:
    """Return how requests meet: as the settings say, and as measured where they leave it open.

    Args:
        settings: of the group.
        layout: how rows flow through the model.
        costs: measured times of batches. Without any, nothing is merged or cut that the settings
            do not name.
    """
    mergeable = settings.merge and layout.can_merge
    max_rows = settings.max_rows
    split_rows = settings.split_rows if layout.can_split else 0
    if costs:
        max_rows = best_batch_rows(costs) if max_rows is None else max_rows
        split_rows = best_split_rows(costs) if split_rows is None else split_rows
    return BatchPlan(mergeable, max_rows or 1, split_rows or 0, costs)


def company_of(
    layout: RowLayout, requests: Sequence[tuple[Inputs, int]]
) -> tuple[Inputs | None, int]:
    """Return the rows that must go along with every batch and their number; None, 0 if none must.

    A graph that picks rows by their data (those with a history, say) may pick none, and ONNX
    Runtime ends the whole process when a recurrent layer gets no row at all. The rows of an example
    that ran are picked whatever stands beside them, and being independent they change no answer.

    Args:
        layout: how rows flow through the model.
        requests: inputs and rows of requests that ran.
    """
    if layout.splittable or not layout.can_pad:
        return None, 0
    return min([one for one in requests if one[1]], key=lambda one: one[1], default=(None, 0))


def _run(binding: Binding, inputs: Inputs, rows: int, source: CutSource | None) -> None:
    stage = stage_request(binding, inputs, rows)
    if source is not None and isinstance(stage, CutStage):
        stage.look_up(source)
    stage.enqueue()
    stage.outputs()


def _of_one_user(inputs: Inputs, users: frozenset[int]) -> Inputs:
    """The same request with its first user for all of its rows, as most requests have it."""
    return tuple(
        np.broadcast_to(array[:1], array.shape) if at in users else array
        for at, array in enumerate(inputs)
    )


def _resized(inputs: Inputs, axes: tuple[int | None, ...], rows: int) -> Inputs:
    """The same request with its rows repeated or cut to `rows` rows."""
    return tuple(
        array if axis is None else np.resize(array, (rows, *array.shape[1:]))
        for array, axis in zip(inputs, axes, strict=True)
    )
