"""Running a cut model where whole graphs are run: the same verbs, with a lookup in between.

A stage of a cut model has the inputs of the original. Those that the dense graph takes as they come
are its own staging; the others lie beside it. `look_up` makes ids where the plan needs that, and
writes rows straight into the staging of the dense graph.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Binding, DenseBackend, Engine, Shape, Stage
from anabranch_runtime.buffers import aligned_array
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.cut_models import CutModel, IdRead
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.models import DenseModel
from anabranch_runtime.store import FeatureArrays, LookupArguments, LookupPlan
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
    dense = backend.build(cut.dense, cancellation)
    try:
        prelude = None if cut.prelude is None else backend.build(cut.prelude, cancellation)
    except BaseException:
        dense.close()
        raise
    return CutEngine(model, cut, dense, prelude)


class CutEngine:
    """The graphs of a cut model; see `Engine`."""

    def __init__(
        self, model: DenseModel, cut: CutModel, dense: Engine, prelude: Engine | None
    ) -> None:
        self._model = model
        self._cut = cut
        self._dense = dense
        self._prelude = prelude

    def bind(self) -> "CutBinding":
        """Make the buffers of one more executor."""
        dense = self._dense.bind()
        try:
            prelude = None if self._prelude is None else self._prelude.bind()
        except BaseException:
            dense.close()
            raise
        return CutBinding(self._model, self._cut, dense, prelude)

    def close(self) -> None:
        """Free the graphs."""
        self._dense.close()
        if self._prelude is not None:
            self._prelude.close()


class CutBinding:
    """One executor's hold on a cut model; see `Binding`. `counts` and `let_go` for any thread.

    Attributes:
        plan: of its lookups.
    """

    def __init__(
        self, model: DenseModel, cut: CutModel, dense: Binding, prelude: Binding | None
    ) -> None:
        self.plan = cut.plan
        self._model = model
        self._cut = cut
        self._dense = dense
        self._prelude = prelude
        self._lock = threading.Lock()
        self._stages: OrderedDict[tuple[Shape, ...], CutStage] = OrderedDict()
        self._counted = np.zeros((2, len(cut.reads)), np.uint64)

    def stage(self, shapes: tuple[Shape, ...]) -> "CutStage":
        """Return the stage for these shapes of the original's inputs."""
        rows = self._rows(shapes)
        dense = self._dense.stage(self._dense_shapes(shapes, rows))
        stages = self._stages
        stage = stages.get(shapes)
        if stage is not None and stage.dense is dense:
            stages.move_to_end(shapes)
            return stage
        made = CutStage(self._cut, shapes, rows, dense, self._prelude)
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
        self._dense.close()
        if self._prelude is not None:
            self._prelude.close()

    def _rows(self, shapes: tuple[Shape, ...]) -> int:
        for shape, axis in zip(shapes, self._model.rows.input_axes, strict=True):
            if axis is not None:
                return shape[axis]
        return 1

    def _dense_shapes(self, shapes: tuple[Shape, ...], rows: int) -> tuple[Shape, ...]:
        found: list[Shape] = [() if index is None else shapes[index] for index in self._cut.passed]
        for buffer, position in zip(self._cut.plan.buffers, self._cut.buffers, strict=True):
            found[position] = (rows if buffer.side == "row" else 1, buffer.columns)
        return tuple(found)


class CutStage:
    """Staging memory of one combination of shapes; see `Stage`.

    `look_up` belongs between filling `inputs` and `enqueue`.

    Attributes:
        inputs: one array per input of the original.
        dense: stage of the dense graph, whose memory some of `inputs` are.
    """

    __slots__ = (
        "_arguments",
        "_buffers",
        "_counted",
        "_cut",
        "_made",
        "_plan",
        "_prelude",
        "_rows",
        "dense",
        "inputs",
    )

    def __init__(
        self,
        cut: CutModel,
        shapes: Sequence[Shape],
        rows: int,
        dense: Stage,
        prelude: Binding | None,
    ) -> None:
        self.dense = dense
        self._cut = cut
        self._rows = rows
        passed = {
            index: array
            for index, array in zip(cut.passed, dense.inputs, strict=True)
            if index is not None
        }
        self._prelude = None
        made: dict[int, Array] = {}
        if prelude is not None:
            self._prelude = prelude.stage(tuple([shapes[index] for index in cut.prelude_inputs]))
            made = dict(zip(cut.prelude_inputs, self._prelude.inputs, strict=True))
        self.inputs: tuple[Array, ...] = tuple(
            [
                passed[index]
                if index in passed
                else made[index]
                if index in made
                else _array(shape, spec)
                for index, (shape, spec) in enumerate(zip(shapes, cut.inputs, strict=True))
            ]
        )
        self._buffers = [dense.inputs[position] for position in cut.buffers]
        self._made: Sequence[Array] = ()
        self._plan: LookupPlan | None = None
        self._arguments: LookupArguments | None = None
        self._counted = np.zeros((2, len(cut.reads)), np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs and buffers."""
        return sum([array.nbytes for array in (*self.inputs, *self._buffers)])

    def look_up(self, source: CutSource) -> None:
        """Fill the buffers of the dense graph with the rows that the inputs ask for.

        Raises:
            InvalidInput: an id is refused; what the buffers hold is undefined then.
        """
        if self._prelude is not None:
            self._run_prelude(self._prelude)
        if self._plan is not source.plan:
            self._bind(source.plan)
        arguments = self._arguments
        assert arguments is not None
        source.plan.run(arguments, source.view.version, self._rows, users=1)

    def enqueue(self) -> None:
        """Start the dense graph."""
        self.dense.enqueue()

    def outputs(self) -> Sequence[Array]:
        """Wait for it, and return its outputs."""
        return self.dense.outputs()

    def counts(self) -> NDArray[np.uint64]:
        """Keys and misses per lookup, as (2, lookups)."""
        arguments = self._arguments
        if arguments is None:
            return self._counted
        return self._counted + np.array([arguments.keys, arguments.misses], np.uint64)

    def let_go(self, plan: int) -> None:
        """Let go of a lookup plan, by its `id`; what was counted stays."""
        if self._plan is not None and id(self._plan) == plan:
            self._counted = self.counts()
            self._plan = self._arguments = None

    def _run_prelude(self, prelude: Stage) -> None:
        for index, array in zip(self._cut.prelude_inputs, prelude.inputs, strict=True):
            if self.inputs[index] is not array:
                array[...] = self.inputs[index]
        prelude.enqueue()
        made = prelude.outputs()
        if self._arguments is not None and not _are_same(made, self._made):
            for index, read in enumerate(self._cut.reads):
                if read.of_prelude:
                    self._arguments.bind(index, self._ids(made[read.index], read, index))
        self._made = made

    def _bind(self, plan: LookupPlan) -> None:
        """Bind the lookups of a plan to the memory of this stage."""
        counted = self.counts()
        features = []
        for index, read in enumerate(self._cut.reads):
            array = self._made[read.index] if read.of_prelude else self.inputs[read.index]
            features.append(FeatureArrays(self._ids(array, read, index)))
        self._arguments = plan.arguments(features, self._buffers)
        self._plan = plan
        self._counted = counted

    def _ids(self, array: Array, read: IdRead, lookup: int) -> Array:
        """Return the ids of a lookup as (rows, ids), a view."""
        side = self._cut.plan.lookups[lookup].side
        rows = self._rows if side == "row" else 1
        begin, end = read.columns
        flat = array.reshape(rows, -1) if rows else array.reshape(0, max(end, 1))
        return flat[:, begin:end]


def _are_same(arrays: Sequence[Array], others: Sequence[Array]) -> bool:
    return len(arrays) == len(others) and all(
        [one is other for one, other in zip(arrays, others, strict=True)]
    )


def _array(shape: Shape, spec: TensorSpec) -> Array:
    if spec.datatype == "BYTES":
        return np.empty(shape, dtype=object)
    return aligned_array(shape, spec.dtype)
