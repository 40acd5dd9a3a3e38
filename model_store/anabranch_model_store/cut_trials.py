"""A cut model, run as it is served: the same kernels over the same rows, the same staging."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from anabranch_graph_opt.running import Array
from anabranch_model_store.store_trials import TrialStore
from anabranch_runtime.backends import load_backend
from anabranch_runtime.cut_engines import CutBinding, build_engine
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.cut_stages import CutStage
from anabranch_runtime.cut_staging import stage_batch, stage_request
from anabranch_runtime.models import DenseModel

__all__ = ["CutTrial", "open_cut_trial"]

_TIMED: Final = 9


class CutTrial:
    """Runs batches of one cut model; `open_cut_trial` makes it. For one thread."""

    def __init__(self, model: DenseModel, binding: CutBinding, source: CutSource) -> None:
        self._model = model
        self._binding = binding
        self._source = source

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return every output for one batch of the original's inputs.

        Raises:
            AnabranchError: an id is refused, or a graph cannot compute it.
        """
        return self._outputs(self._looked_up(inputs))

    def run_together(self, requests: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return every output for several requests in one batch, their rows one below the other.

        Raises:
            AnabranchError: an id is refused, or a graph cannot compute it.
        """
        axes = self._model.rows.input_axes
        ordered = [self._ordered(inputs) for inputs in requests]
        rows = sum(count for _, count in ordered)
        stage = stage_batch(self._binding, ordered, axes, rows, None)
        assert isinstance(stage, CutStage)
        stage.look_up(self._source)
        return self._outputs(stage)

    def seconds(self, inputs: Mapping[str, Array]) -> float:
        """Return how long one batch takes this thread, lookups counted; the middle of several."""
        arrays, rows = self._ordered(inputs)
        times = []
        for _ in range(_TIMED):
            begun = time.thread_time()
            stage = stage_request(self._binding, arrays, rows)
            assert isinstance(stage, CutStage)
            stage.look_up(self._source)
            stage.enqueue()
            stage.outputs()
            times.append(time.thread_time() - begun)
        return statistics.median(times)

    def dense_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return what the dense graph gets for one batch of the original's inputs.

        Raises:
            AnabranchError: an id is refused, or the prelude cannot compute it.
        """
        stage = self._looked_up(inputs)
        cut = self._model.cut
        assert cut is not None
        return {
            spec.name: array.copy()
            for spec, array in zip(cut.dense.inputs, stage.dense.inputs, strict=True)
        }

    def _looked_up(self, inputs: Mapping[str, Array]) -> CutStage:
        stage = stage_request(self._binding, *self._ordered(inputs))
        assert isinstance(stage, CutStage)
        stage.look_up(self._source)
        return stage

    def _ordered(self, inputs: Mapping[str, Array]) -> tuple[tuple[Array, ...], int]:
        """Return the inputs in the original's order, and their rows."""
        arrays = tuple([inputs[spec.name] for spec in self._model.inputs])
        axes = self._model.rows.input_axes
        rows = [a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None]
        return arrays, rows[0] if rows else 1

    def _outputs(self, stage: CutStage) -> dict[str, Array]:
        stage.enqueue()
        return {
            spec.name: array.copy()
            for spec, array in zip(self._model.outputs, stage.outputs(), strict=True)
        }


@contextmanager
def open_cut_trial(model: DenseModel, segment: Path) -> Iterator[CutTrial]:
    """Build a cut model over the rows of a segment.

    Raises:
        AnabranchError: a graph cannot be built, or the segment does not fit.
        OSError: there is no memory to be had.
    """
    assert model.cut is not None
    store = TrialStore(segment)
    source = CutSource.open(model.cut, store.view)
    with (
        closing(build_engine(load_backend("ort-cpu"), model)) as engine,
        closing(engine.bind()) as binding,
    ):
        assert isinstance(binding, CutBinding)
        yield CutTrial(model, binding, source)
