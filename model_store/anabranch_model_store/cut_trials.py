"""A cut model, run as it is served: the same kernels over the same rows, the same staging."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from anabranch_graph_opt.running import Array
from anabranch_model_store.store_trials import TrialStore
from anabranch_runtime.backends import load_backend
from anabranch_runtime.cut_engines import CutBinding, CutStage, build_engine
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.models import DenseModel

__all__ = ["CutTrial", "open_cut_trial"]


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
        stage = self._looked_up(inputs)
        stage.enqueue()
        return {
            spec.name: array.copy()
            for spec, array in zip(self._model.outputs, stage.outputs(), strict=True)
        }

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
        arrays = [inputs[spec.name] for spec in self._model.inputs]
        stage = self._binding.stage(tuple([array.shape for array in arrays]))
        for staged, array in zip(stage.inputs, arrays, strict=True):
            staged[...] = array
        stage.look_up(self._source)
        return stage


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
