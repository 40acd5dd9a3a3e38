"""Running a cut model where whole graphs are run: the same verbs, with a lookup in between.

A stage of a cut model has the inputs of the original. Those that a graph takes as they come are its
own staging; the others lie beside it. `look_up` makes ids where the plan needs that, and writes
rows straight into the staging of the graphs. With a user side, inputs that hold a user have a row
for each user of the batch, and `index` says which of them each row has.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Binding, DenseBackend, Engine, Shape, Stage
from anabranch_runtime.buffers import aligned_array
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.cut_models import CutModel, IdRead
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.models import DenseModel
from anabranch_runtime.store import FeatureArrays, LookupArguments, LookupPlan
from anabranch_wire.lookups import Side
from anabranch_wire.tensors import TensorSpec

__all__ = ["CutBinding", "CutEngine", "CutStage", "build_engine"]

_STAGES: Final = 256
_BYTES: Final = 64 * 1024 * 1024
"""Stages that a binding keeps: so many, of so many bytes together."""

Array = NDArray[Any]


def build_engine(
    backend: DenseBackend, model: DenseModel, cancellation: Cancellation | None = None
) -> Engine:
    """Build what runs a model, whole or cut.

    Raises:
        AnabranchError: as `DenseBackend.build`.
    """
    cut = model.cut
    if cut is None:
        return backend.build(model, cancellation)
    graphs = (cut.dense, cut.prelude, None if cut.user is None else cut.user.graph)
    built: list[Engine | None] = []
    try:
        for graph in graphs:
            built.append(None if graph is None else backend.build(graph, cancellation))
    except BaseException:
        for engine in built:
            if engine is not None:
                engine.close()
        raise
    dense, prelude, user = built
    assert dense is not None
    return CutEngine(model, cut, dense, prelude, user)


class CutEngine:
    """The graphs of a cut model; see `Engine`."""

    def __init__(
        self,
        model: DenseModel,
        cut: CutModel,
        dense: Engine,
        prelude: Engine | None,
        user: Engine | None,
    ) -> None:
        self._model = model
        self._cut = cut
        self._dense = dense
        self._beside = (prelude, user)

    def bind(self) -> "CutBinding":
        """Make the buffers of one more executor."""
        bound: list[Binding | None] = []
        try:
            for engine in (self._dense, *self._beside):
                bound.append(None if engine is None else engine.bind())
        except BaseException:
            for binding in bound:
                if binding is not None:
                    binding.close()
            raise
        dense, prelude, user = bound
        assert dense is not None
        return CutBinding(self._model, self._cut, dense, prelude, user)

    def close(self) -> None:
        """Free the graphs."""
        for engine in (self._dense, *self._beside):
            if engine is not None:
                engine.close()


class CutBinding:
    """One executor's hold on a cut model; see `Binding`. `counts` and `let_go` for any thread.

    Attributes:
        plan: of its lookups.
        users: positions of the inputs that hold a user; empty where all runs per row.
    """

    def __init__(
        self,
        model: DenseModel,
        cut: CutModel,
        dense: Binding,
        prelude: Binding | None,
        user: Binding | None,
    ) -> None:
        self.plan = cut.plan
        self.users = frozenset(cut.user_inputs)
        self._axes = model.rows.input_axes
        self._cut = cut
        self._dense = dense
        self._prelude = prelude
        self._user = user
        self._lock = threading.Lock()
        self._stages: OrderedDict[tuple[Shape, ...], CutStage] = OrderedDict()
        self._counted = np.zeros((2, len(cut.reads)), np.uint64)

    def stage(self, shapes: tuple[Shape, ...]) -> "CutStage":
        """Return the stage for these shapes of the original's inputs.

        Inputs of `users` have a row for each user of the batch.
        """
        counts = self._counts(shapes)
        parts = self._parts(shapes, counts)
        stages = self._stages
        stage = stages.get(shapes)
        if stage is not None and stage.dense is parts.dense and stage.user is parts.user:
            stages.move_to_end(shapes)
            return stage
        made = CutStage(self._cut, shapes, counts, parts, self._lock)
        with self._lock:
            if stage is not None:
                self._counted += stage.counts()
            stages[shapes] = made
            stages.move_to_end(shapes)
            while len(stages) > 1 and (
                len(stages) > _STAGES or sum([one.nbytes for one in stages.values()]) > _BYTES
            ):
                self._counted += stages.popitem(last=False)[1].counts()
        return made

    def counts(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return per lookup of the plan how many keys were looked up, and how many were missing."""
        with self._lock:
            total = self._counted.copy()
            for stage in self._stages.values():
                total += stage.counts()
        return total[0], total[1]

    def let_go(self, plan: int) -> None:
        """Let go of a lookup plan, by its `id`, that no version reads with any more."""
        with self._lock:
            for stage in self._stages.values():
                stage.let_go(plan)

    def close(self) -> None:
        """Free the staging memory."""
        with self._lock:
            for stage in self._stages.values():
                self._counted += stage.counts()
            self._stages.clear()
        for binding in (self._dense, self._prelude, self._user):
            if binding is not None:
                binding.close()

    def _counts(self, shapes: tuple[Shape, ...]) -> "_Counts":
        rows = users = 1
        for index, (shape, axis) in enumerate(zip(shapes, self._axes, strict=True)):
            if axis is None:
                continue
            if index in self.users:
                users = shape[axis]
            else:
                rows = shape[axis]
        return _Counts(rows, users)

    def _parts(self, shapes: tuple[Shape, ...], counts: "_Counts") -> "_Stages":
        """Return the stages of the graphs."""
        cut, part = self._cut, self._cut.user
        dense: list[Shape] = [() if index is None else shapes[index] for index in cut.passed]
        for buffer, position in zip(cut.plan.buffers, cut.buffers, strict=True):
            if position is not None:
                dense[position] = (counts.of(buffer.side), buffer.columns)
        prelude = user = None
        if self._prelude is not None:
            prelude = self._prelude.stage(
                tuple([self._shape_by_row(shapes, i, counts.rows) for i in cut.prelude_inputs])
            )
        if self._user is not None and part is not None:
            for output, position in enumerate(part.gives):
                spec = part.graph.outputs[output]
                dense[position] = tuple([counts.users if s == -1 else s for s in spec.shape])
            dense[part.index] = (counts.rows,)
            given: list[Shape] = [() if index is None else shapes[index] for index in part.takes]
            for buffer, place in zip(cut.plan.buffers, part.buffers, strict=True):
                if place is not None:
                    given[place] = (counts.users, buffer.columns)
            user = self._user.stage(tuple(given))
        return _Stages(self._dense.stage(tuple(dense)), prelude, user)

    def _shape_by_row(self, shapes: tuple[Shape, ...], index: int, rows: int) -> Shape:
        shape = shapes[index]
        return (rows, *shape[1:]) if index in self.users else shape


class _Counts(NamedTuple):
    """Rows and users of a batch."""

    rows: int
    users: int

    def of(self, side: Side) -> int:
        """Return how many rows a buffer has; without users, what all rows share has one."""
        return self.rows if side == "row" else self.users


class _Stages(NamedTuple):
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
        counts: _Counts,
        parts: _Stages,
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
