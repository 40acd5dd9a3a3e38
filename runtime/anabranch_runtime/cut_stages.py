"""Staging memory of a cut model: its inputs, and what lookups write into its graphs.

A stage has the inputs of the original. Those that a graph takes as they come are its own staging;
the others lie beside it. `look_up` makes ids where the plan needs that, and writes rows straight
into the staging of the graphs. With a user side, inputs that hold a user have a row for each user
of the batch, and `index` says which of them each row has.
"""

import threading
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Shape, Stage
from anabranch_runtime.buffers import aligned_array
from anabranch_runtime.cut_models import CutModel, IdRead
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.store import FeatureArrays, LookupArguments, LookupPlan
from anabranch_wire.lookups import Side
from anabranch_wire.tensors import TensorSpec

__all__ = ["CutStage", "PartStages", "RowCounts"]

Array = NDArray[Any]


class RowCounts(NamedTuple):
    """Rows and users of a batch."""

    rows: int
    users: int

    def of(self, side: Side) -> int:
        """Return how many rows a buffer has; without users, what all rows share has one."""
        return self.rows if side == "row" else self.users


class PartStages(NamedTuple):
    """Stages of the graphs of a cut model, for one combination of shapes."""

    dense: Stage
    prelude: Stage | None
    user: Stage | None


class _Bound(NamedTuple):
    """A lookup plan, bound to the memory of a stage."""

    plan: LookupPlan
    arguments: LookupArguments


class _Gathered(NamedTuple):
    """Columns of an input, and a copy of them without gaps."""

    columns: Array
    array: Array


class CutStage:
    """Staging memory of one combination of shapes; see `Stage`.

    `look_up` belongs between filling `inputs` and `enqueue`. For the thread of one executor, but
    `counts` and `let_go` for whoever holds the lock of its binding.

    Attributes:
        inputs: one array per input of the original; those that hold a user have a row for each.
        index: int64 [rows], the user of each row, to be filled; None without a user side.
        dense: stage of the dense graph.
        user: stage of the user's graph; None without a user side.
    """

    __slots__ = (
        "_bound",
        "_buffers",
        "_by_row",
        "_counted",
        "_counts",
        "_cut",
        "_gathered",
        "_lock",
        "_made",
        "_prelude",
        "dense",
        "index",
        "inputs",
        "user",
    )

    def __init__(
        self,
        cut: CutModel,
        shapes: Sequence[Shape],
        counts: RowCounts,
        parts: PartStages,
        lock: threading.Lock,
    ) -> None:
        self.dense = parts.dense
        self.user = parts.user
        self._prelude = parts.prelude
        self._cut = cut
        self._counts = counts
        part = cut.user
        holders = set(cut.user_inputs)
        own = _taken(cut.passed, parts.dense)
        if parts.prelude is not None:
            made = dict(zip(cut.prelude_inputs, parts.prelude.inputs, strict=True))
            own = {**{i: array for i, array in made.items() if i not in holders}, **own}
        if part is not None and parts.user is not None:
            own |= _taken(part.takes, parts.user)
        self.index: Array | None = None if part is None else parts.dense.inputs[part.index]
        self.inputs: tuple[Array, ...] = tuple(
            [
                own[index] if index in own else _array(shape, spec)
                for index, (shape, spec) in enumerate(zip(shapes, cut.inputs, strict=True))
            ]
        )
        self._by_row = self._repeated(holders)
        self._buffers = [
            self._buffer(index, position) for index, position in enumerate(cut.buffers)
        ]
        self._made: Sequence[Array] = ()
        self._lock = lock
        self._bound: _Bound | None = None
        self._gathered: dict[int, _Gathered] = {}
        self._counted = np.zeros((2, len(cut.reads)), np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs and buffers."""
        return sum([array.nbytes for array in (*self.inputs, *self._buffers)])

    def look_up(self, source: CutSource) -> None:
        """Fill the buffers of the graphs with the rows that the inputs ask for.

        Raises:
            InvalidInput: an id is refused; what the buffers hold is undefined then.
        """
        for index, array in self._by_row.items():
            assert self.index is not None
            np.take(self.inputs[index], self.index, axis=0, out=array, mode="clip")
        if self._prelude is not None:
            self._run_prelude(self._prelude)
        bound = self._bound
        if bound is None or bound.plan is not source.plan:
            bound = self._bind(source.plan)
        for columns, array in self._gathered.values():
            np.copyto(array, columns)
        rows, users = self._counts
        source.plan.run(bound.arguments, source.view.version, rows, users=users)

    def enqueue(self) -> None:
        """Start the graphs."""
        part, user = self._cut.user, self.user
        if part is not None and user is not None:
            user.enqueue()
            for array, position in zip(user.outputs(), part.gives, strict=True):
                self.dense.inputs[position][...] = array
        self.dense.enqueue()

    def outputs(self) -> Sequence[Array]:
        """Wait for them, and return the outputs."""
        return self.dense.outputs()

    def counts(self) -> NDArray[np.uint64]:
        """Keys and misses per lookup, as (2, lookups)."""
        bound = self._bound
        if bound is None:
            return self._counted
        arguments = bound.arguments
        return self._counted + np.array([arguments.keys, arguments.misses], np.uint64)

    def let_go(self, plan: int) -> None:
        """Let go of a lookup plan, by its `id`; what was counted stays."""
        if self._bound is not None and id(self._bound.plan) == plan:
            self._counted = self.counts()
            self._bound = None

    def _repeated(self, holders: Collection[int]) -> dict[int, Array]:
        """Return arrays for inputs that hold a user, but are read by row."""
        cut, rows = self._cut, self._counts.rows
        found: dict[int, Array] = {}
        if self._prelude is not None:
            for index, array in zip(cut.prelude_inputs, self._prelude.inputs, strict=True):
                if index in holders:
                    found[index] = array
        for lookup, *reads in zip(cut.plan.lookups, cut.reads, cut.weights, strict=True):
            for read in reads:
                if read is None or read.of_prelude or lookup.side != "row":
                    continue
                index = read.index
                if index in holders and index not in found:
                    shape = (rows, *self.inputs[index].shape[1:])
                    found[index] = _array(shape, cut.inputs[index])
        return found

    def _buffer(self, index: int, position: int | None) -> Array:
        if position is not None:
            return self.dense.inputs[position]
        part, user = self._cut.user, self.user
        assert part is not None
        assert user is not None
        place = part.buffers[index]
        assert place is not None
        return user.inputs[place]

    def _run_prelude(self, prelude: Stage) -> None:
        for index, array in zip(self._cut.prelude_inputs, prelude.inputs, strict=True):
            if self.inputs[index] is not array and index not in self._by_row:
                array[...] = self.inputs[index]
        prelude.enqueue()
        made, before = prelude.outputs(), self._made
        self._made = made
        bound = self._bound
        if bound is not None and not _are_same(made, before):
            for index, reads in enumerate(zip(self._cut.reads, self._cut.weights, strict=True)):
                if any([read is not None and read.of_prelude for read in reads]):
                    arrays = self._feature(index)
                    bound.arguments.bind(index, arrays.ids, None, arrays.weights)

    def _bind(self, plan: LookupPlan) -> "_Bound":
        """Bind the lookups of a plan to the memory of this stage."""
        features = [self._feature(index) for index in range(len(self._cut.reads))]
        bound = _Bound(plan, plan.arguments(features, self._buffers))
        with self._lock:  # another thread may let go of the plan before, or be counting
            self._counted = self.counts()
            self._bound = bound
        return bound

    def _feature(self, lookup: int) -> FeatureArrays:
        """Return what a lookup reads."""
        bag = self._cut.bags[lookup]
        if bag is not None:
            return self._ragged(lookup, self.inputs[bag])
        ids = self._elements(self._cut.reads[lookup], lookup)
        read = self._cut.weights[lookup]
        if read is None:
            return FeatureArrays(ids)
        weights = self._elements(read, lookup)
        if not weights.flags.c_contiguous:  # columns among others: kernels want one after another
            gathered = _Gathered(weights, weights.copy())
            self._gathered[lookup] = gathered
            weights = gathered.array
        return FeatureArrays(ids, None, weights.reshape(-1))

    def _ragged(self, lookup: int, bag: Array) -> FeatureArrays:
        """Return what a lookup reads whose bags follow one another in its inputs."""
        ids, weights = self._cut.reads[lookup], self._cut.weights[lookup]
        return FeatureArrays(
            self.inputs[ids.index],
            bag,
            None if weights is None else self.inputs[weights.index],
        )

    def _elements(self, read: IdRead, lookup: int) -> Array:
        """Return the ids or weights of a lookup as (rows, ids), a view."""
        side = self._cut.plan.lookups[lookup].side
        if read.of_prelude:
            array = self._made[read.index]
        elif side == "row":
            array = self._by_row.get(read.index, self.inputs[read.index])
        else:
            array = self.inputs[read.index]
        rows = self._counts.of(side)
        begin, end = read.columns
        flat = array.reshape(rows, -1) if rows else array.reshape(0, max(end, 1))
        return flat[:, begin:end]


def _taken(positions: Sequence[int | None], stage: Stage) -> dict[int, Array]:
    """Return the arrays of a stage that are inputs of the original, by position there."""
    return {
        index: array
        for index, array in zip(positions, stage.inputs, strict=True)
        if index is not None
    }


def _are_same(arrays: Sequence[Array], others: Sequence[Array]) -> bool:
    return len(arrays) == len(others) and all(
        [one is other for one, other in zip(arrays, others, strict=True)]
    )


def _array(shape: Shape, spec: TensorSpec) -> Array:
    if spec.datatype == "BYTES":
        return np.empty(shape, dtype=object)
    return aligned_array(shape, spec.dtype)
