"""Lookups of one executor: batches staged with the rows that they look up, and what was counted."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Binding, Stage
from anabranch_runtime.cut_engines import CutBinding
from anabranch_runtime.lookup_staging import LookupStaging
from anabranch_runtime.lookups import Lookups
from anabranch_runtime.requests import Ticket
from anabranch_runtime.row_source import RowSource
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.staging import fill_rows, pad_rows
from anabranch_wire.plan import Plan

__all__ = ["ExecutorLookups", "LookedUp", "LookupCount", "LookupCounts", "add_counts"]


class LookupCount(NamedTuple):
    """What was looked up of one feature in one table."""

    keys: int
    misses: int


LookupCounts = Mapping[tuple[str, str], LookupCount]
"""Feature and table -> what was counted."""


class LookedUp(NamedTuple):
    """A staged batch, and when its rows were looked up."""

    stage: Stage
    begun: float
    ended: float


class ExecutorLookups:
    """For the thread of one executor; `keep`, `forget`, `let_go` and `counts` for any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stagings: dict[int, LookupStaging] = {}
        self._about: dict[int, Lookups] = {}
        self._cut: dict[int, CutBinding] = {}
        self._counted: LookupCounts = {}

    def stage(
        self,
        version: ServedVersion,
        binding: Binding,
        batch: list[Ticket],
        rows: int,
        run_rows: int,
    ) -> LookedUp:
        """Stage the `rows` rows of `batch` with their lookups, padded to `run_rows`.

        Raises:
            InvalidInput: a key is missing that must not be.
        """
        source = version.source
        assert isinstance(source, RowSource)
        lookups = source.lookups
        axes = version.model.rows.input_axes
        company = version.company
        requests = [(ticket.request.inputs, ticket.request.rows) for ticket in batch]
        first = requests[0][0]
        shapes: list[tuple[int, ...]] = [()] * len(axes)
        for at, index in enumerate(lookups.dense):
            shape = first[at].shape
            shapes[index] = shape if axes[index] != 0 else (run_rows, *shape[1:])
        for buffer, index in zip(lookups.plan.buffers, lookups.buffers, strict=True):
            shapes[index] = (run_rows, buffer.columns)
        stage = binding.stage(tuple(shapes))
        inputs = stage.inputs
        for at, index in enumerate(lookups.dense):
            if axes[index] != 0:
                inputs[index][...] = first[at]
                continue
            arrays = [one[at] for one, _ in requests]
            if company is not None:
                arrays.append(company[index])
            fill_rows(inputs[index], arrays)
        staged = [inputs[index] for index in lookups.buffers]
        begun = time.monotonic()
        if rows:
            staging = self._stagings.get(version.token) or self._make(version.token, lookups)
            staging.look_up(source, requests, rows, staged)
        ended = time.monotonic()
        for array, index in zip(staged, lookups.buffers, strict=True):
            filled = rows
            if company is not None:
                filled += version.company_rows
                array[rows:filled] = company[index]
            pad_rows(array, filled)
        return LookedUp(stage, begun, ended)

    def keep(self, token: int, binding: CutBinding) -> None:
        """Count what a binding of a cut model looks up, until the engine is forgotten."""
        with self._lock:
            self._cut[token] = binding

    def forget(self, token: int) -> None:
        """Let go of what was kept for an engine, but for what was counted."""
        with self._lock:
            binding = self._cut.pop(token, None)
            if binding is not None:
                self._counted = add_counts([self._counted, _of_binding(binding)])
            staging = self._stagings.pop(token, None)
            if staging is not None:
                counted = _named(self._about.pop(token).plan, *staging.counts())
                self._counted = add_counts([self._counted, counted])

    def let_go(self, plan: int) -> None:
        """Let go of a lookup plan, by its `id`, that no version reads with any more."""
        with self._lock:
            for staging in self._stagings.values():
                staging.let_go(plan)
            for binding in self._cut.values():
                binding.let_go(plan)

    def counts(self) -> LookupCounts:
        """Return what was counted since the beginning."""
        with self._lock:
            live = [
                _named(self._about[token].plan, *staging.counts())
                for token, staging in self._stagings.items()
            ]
            live += [_of_binding(binding) for binding in self._cut.values()]
            return add_counts([self._counted, *live])

    def _make(self, token: int, lookups: Lookups) -> LookupStaging:
        staging = LookupStaging(lookups)
        with self._lock:
            self._stagings[token] = staging
            self._about[token] = lookups
        return staging


def add_counts(counts: Iterable[LookupCounts]) -> LookupCounts:
    """Return the sums of several counts."""
    keys: dict[tuple[str, str], int] = defaultdict(int)
    misses: dict[tuple[str, str], int] = defaultdict(int)
    for one in counts:
        for name, count in one.items():
            keys[name] += count.keys
            misses[name] += count.misses
    return {name: LookupCount(keys[name], misses[name]) for name in keys}


def _of_binding(binding: CutBinding) -> LookupCounts:
    return _named(binding.plan, *binding.counts())


def _named(plan: Plan, keys: NDArray[np.uint64], misses: NDArray[np.uint64]) -> LookupCounts:
    return add_counts(
        [
            {(lookup.ids.input, plan.tables[lookup.table].name): LookupCount(*counted)}
            for lookup, *counted in zip(plan.lookups, keys.tolist(), misses.tolist(), strict=True)
        ]
    )
