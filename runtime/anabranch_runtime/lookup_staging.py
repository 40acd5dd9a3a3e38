"""One executor's side of lookups: features of a batch gathered, their rows written into staging.

The ids and lengths of all features lie one behind the other in one array, so that a batch costs one
copy; its weights in another. Rows go straight into the inputs of the graph.
"""

import threading
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from anabranch_runtime.buffers import aligned_array
from anabranch_runtime.combined_lookups import join
from anabranch_runtime.lookups import Lookups
from anabranch_runtime.row_source import RowSource
from anabranch_runtime.store import FeatureArrays, LookupArguments, LookupPlan

__all__ = ["LookupStaging"]

_KEPT_NUMBERS: Final = 2**21
"""Of the features of a batch; a larger one gets memory for itself alone."""

_JOINED_NUMBERS: Final = 2**16
"""Up to so many are joined as bytes, which costs a third for each array but copies them twice."""

_BOUND: Final = 256
_BOUND_BYTES: Final = 64 * 1024 * 1024
"""Bindings to staging that are kept: so many, for so many bytes of it."""

Array = NDArray[Any]
Inputs = tuple[Array, ...]
Requests = Sequence[tuple[Inputs, int]]
"""Inputs and rows of each request."""


class LookupStaging:
    """What one executor keeps to look up rows for one engine.

    For one thread; `counts` and `let_go` for any.
    """

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._once = any(feature.once for feature in lookups.features)
        self._users = tuple([buffer.side == "user" for buffer in lookups.plan.buffers])
        self._has_users = any(self._users)
        self._joints = lookups.separate.joints
        self._reads, self._integers_at, self._weights_at = _reads_of(lookups)
        self._integers = _Numbers(np.int64)
        self._weights = _Numbers(np.float32)
        self._lock = threading.Lock()
        self._bound: dict[int, _Bound] = {}
        self._counted = np.zeros((2, len(lookups.plan.lookups)), np.uint64)

    def look_up(
        self, source: RowSource, requests: Requests, rows: int, staged: Sequence[Array]
    ) -> None:
        """Write the rows of all features of `requests` into the first `rows` rows of `staged`.

        Args:
            source: where they are read.
            requests: one below the other; `rows` rows together, at least one.
            rows: of all requests.
            staged: for each buffer of the plan (at least rows, columns).

        Raises:
            InvalidInput: a key is missing that must not be, or an array does not fit; what `staged`
                holds is undefined then.
        """
        integers, ends = self._integers.gather(self._integers_at, requests)
        weights, weight_ends = self._weights.gather(self._weights_at, requests)
        rows_staged = len(staged[0])
        bound = self._bound.get(rows_staged)
        is_kept = bound is not None and bound.plan is source.plan and bound.staged[0] is staged[0]
        # Arrays of the same memory and the same parts are bound already.
        layout = (id(integers.base), id(weights.base), ends, weight_ends)
        is_fresh = integers.base is None or weights.base is None
        if bound is None or not is_kept or is_fresh or bound.layout != layout:
            pieces = [integers[begin:end] for begin, end in pairwise(ends)]
            factors = [weights[begin:end] for begin, end in pairwise(weight_ends)]
            arrays = [read.arrays(pieces, factors) for read in self._reads]
            if bound is None or not is_kept:
                bound = self._bind(source.plan, arrays, staged)
            else:
                bound.layout = None
                for index, (ids, lengths, own) in enumerate(arrays):
                    bound.arguments.bind(index, ids, lengths, own)
            bound.layout = layout
        if self._once:
            users = [self._lookups.users(inputs, count) for inputs, count in requests]
            source.plan.run(bound.arguments, source.view.version, rows, users=sum(users))
            if self._joints:
                join(self._joints, bound.outputs, rows, sum(users))
            if self._has_users:
                self._spread(bound, users, [count for _, count in requests])
        else:
            source.plan.run(bound.arguments, source.view.version, rows)
            if self._joints:
                join(self._joints, bound.outputs, rows, rows)
        if bound.nbytes > _BOUND_BYTES:  # no memory for a batch that its binding does not keep
            with self._lock:
                self._drop(rows_staged)

    def counts(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return per lookup of the plan how many keys were looked up, and how many were missing."""
        with self._lock:
            total = self._counted.copy()
            for bound in self._bound.values():
                total += bound.counts()
        return total[0], total[1]

    def let_go(self, plan: int) -> None:
        """Let go of a plan, by its `id`, that no version reads with any more."""
        with self._lock:
            for rows in [rows for rows, bound in self._bound.items() if id(bound.plan) == plan]:
                self._drop(rows)

    def _bind(
        self, plan: LookupPlan, arrays: "Sequence[_Arrays]", staged: Sequence[Array]
    ) -> "_Bound":
        """Bind a lookup to staging, and keep that; the oldest go where there are too many."""
        outputs = [
            aligned_array(array.shape, array.dtype) if is_user else array
            for array, is_user in zip(staged, self._users, strict=True)
        ]
        outputs += [
            aligned_array(
                (len(staged[0]), buffer.columns),
                np.float32 if buffer.dtype == "f32" else np.float16,
            )
            for buffer in self._lookups.separate.scratch
        ]
        arguments = plan.arguments([FeatureArrays(*each) for each in arrays], outputs)
        bound = _Bound(plan, arguments, tuple(staged), tuple(outputs))
        rows = len(staged[0])
        with self._lock:
            self._drop(rows)
            self._bound[rows] = bound
            while len(self._bound) > 1 and (
                len(self._bound) > _BOUND
                or sum([one.nbytes for one in self._bound.values()]) > _BOUND_BYTES
            ):
                self._drop(next(iter(self._bound)))
        return bound

    def _drop(self, rows: int) -> None:
        """Keep what was counted, and nothing else; the lock is held."""
        bound = self._bound.pop(rows, None)
        if bound is not None:
            self._counted += bound.counts()

    def _spread(self, bound: "_Bound", users: list[int], rows: list[int]) -> None:
        """Give each row what was looked up for its user."""
        # One user of many rows, or a user for each row.
        times = [
            count if each != count else 1
            for each, count in zip(users, rows, strict=True)
            for _ in range(each)
        ]
        index = np.repeat(np.arange(len(times)), times)
        own = bound.outputs[: len(bound.staged)]  # behind them is scratch
        for staged, output, is_user in zip(bound.staged, own, self._users, strict=True):
            if is_user:
                np.take(output, index, axis=0, out=staged[: len(index)], mode="clip")


class _Bound:
    """Arguments of a plan that write into the staging of so many rows.

    Attributes:
        plan: that they belong to.
        arguments: of its runs.
        staged: inputs of the graph.
        outputs: what lookups write: those, or for users memory of their own; then scratch.
        layout: tells which parts of which memory the features are bound to; None: not known.
        nbytes: of staging that it keeps alive.
    """

    __slots__ = ("arguments", "layout", "nbytes", "outputs", "plan", "staged")

    def __init__(
        self,
        plan: LookupPlan,
        arguments: LookupArguments,
        staged: tuple[Array, ...],
        outputs: tuple[Array, ...],
    ) -> None:
        self.plan = plan
        self.arguments = arguments
        self.staged = staged
        self.outputs = outputs
        self.layout: object = None
        self.nbytes = sum([array.nbytes for array in (*staged, *outputs)])

    def counts(self) -> NDArray[np.uint64]:
        """Keys and misses per lookup, as (2, lookups)."""
        return np.array([self.arguments.keys, self.arguments.misses], np.uint64)


class _Numbers:
    """Numbers of one type out of several requests, one behind the other; memory for one thread."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._kept = np.empty(0, dtype)
        self._bytes = self._kept.data.cast("B")

    def gather(self, places: Sequence[int], requests: Requests) -> tuple[Array, tuple[int, ...]]:
        """Return the arrays at `places` of all requests, and where each place begins and ends.

        The array is overwritten by the next call, unless it has no base.
        """
        arrays: list[Any] = [inputs[place] for place in places for inputs, _ in requests]
        ends = tuple(accumulate(map(len, arrays), initial=0))[:: len(requests)]
        size = ends[-1]
        if size > len(self._kept):
            if size > _KEPT_NUMBERS:
                return np.concatenate(arrays), ends
            self._kept = np.empty(1 << (size - 1).bit_length(), self._kept.dtype)
            self._bytes = self._kept.data.cast("B")
        flat = self._kept[:size]
        if size <= _JOINED_NUMBERS:
            self._bytes[: flat.nbytes] = b"".join(arrays)
        else:
            np.concatenate(arrays, out=flat)
        return flat, ends


_Arrays = tuple[Array, Array | None, Array | None]
"""Ids, lengths and weights of one lookup."""


class _Read:
    """Which of the gathered pieces a lookup reads.

    Args:
        width: ids of a row, where that is fixed.
        ids: number of the piece.
        lengths: number of the piece.
        weights: number of the piece among the weights.
    """

    __slots__ = ("_ids", "_lengths", "_weights", "_width")

    def __init__(self, width: int, ids: int, lengths: int | None, weights: int | None) -> None:
        self._width = width
        self._ids = ids
        self._lengths = lengths
        self._weights = weights

    def arrays(self, pieces: Sequence[Array], factors: Sequence[Array]) -> _Arrays:
        """Return its arrays out of those of a batch."""
        ids = pieces[self._ids]
        weights = None if self._weights is None else factors[self._weights]
        if self._lengths is not None:
            return ids, pieces[self._lengths], weights
        return (ids if self._width == 1 else ids.reshape(-1, self._width)), None, weights


def _reads_of(lookups: Lookups) -> tuple[list[_Read], list[int], list[int]]:
    """Return what each lookup reads, and the inputs of a request that are gathered for it."""
    integers = [
        at for place in lookups.places for at in (place.ids, place.lengths) if at is not None
    ]
    weights = [place.weights for place in lookups.places if place.weights is not None]
    reads: list[_Read] = []
    for lookup, source in zip(lookups.plan.lookups, lookups.sources, strict=True):
        place = lookups.places[source]
        reads.append(
            _Read(
                lookup.max_length,
                integers.index(place.ids),
                None if place.lengths is None else integers.index(place.lengths),
                None
                if lookup.weights is None or place.weights is None
                else weights.index(place.weights),
            )
        )
    return reads, integers, weights
