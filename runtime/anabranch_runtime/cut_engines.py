"""Running a cut model where whole graphs are run: the same verbs, with a lookup in between.

A batch has a row for each of its rows, and, with a user side, inputs with a row for each user.
"""

import threading
from collections import OrderedDict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.backends.protocol import Binding, DenseBackend, Engine, Shape
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.cut_models import CutModel
from anabranch_runtime.cut_stages import CutStage, PartStages, RowCounts
from anabranch_runtime.models import DenseModel

__all__ = ["CutBinding", "CutEngine", "build_engine"]

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

    def stage(self, shapes: tuple[Shape, ...]) -> CutStage:
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

    def _counts(self, shapes: tuple[Shape, ...]) -> RowCounts:
        rows = users = 1
        for index, (shape, axis) in enumerate(zip(shapes, self._axes, strict=True)):
            if axis is None:
                continue
            if index in self.users:
                users = shape[axis]
            else:
                rows = shape[axis]
        return RowCounts(rows, users)

    def _parts(self, shapes: tuple[Shape, ...], counts: RowCounts) -> PartStages:
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
        return PartStages(self._dense.stage(tuple(dense)), prelude, user)

    def _shape_by_row(self, shapes: tuple[Shape, ...], index: int, rows: int) -> Shape:
        shape = shapes[index]
        return (rows, *shape[1:]) if index in self.users else shape
