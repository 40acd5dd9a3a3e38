"""A model whole and cut in one process, run as executors run it: staging, lookups, graphs."""

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.store_trials import TrialStore
from anabranch_runtime.backends import load_backend
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.cut_engines import build_engine
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.cut_stages import CutStage
from anabranch_runtime.cut_staging import stage_request
from anabranch_runtime.models import DenseModel
from anabranch_wire.names import ModelName

__all__ = ["Pair", "opened"]

_SLICE: Final = 5
"""Runs of one form before it is the other's turn."""
_LIMIT: Final = 1 << 34

Run = Callable[[], None]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Both forms of a model.

    Attributes:
        prepared: what a server would serve.
        whole: makes a run of one batch by the original.
        cut: by what it would serve; None where that is the original.
    """

    prepared: PreparedVersion
    whole: Callable[[Mapping[str, NDArray[Any]]], Run]
    cut: Callable[[Mapping[str, NDArray[Any]]], Run] | None

    def compare(self, inputs: Mapping[str, NDArray[Any]], seconds: float) -> tuple[float, float]:
        """Return the median milliseconds of a batch, whole and cut, taken by turns.

        Raises:
            AnabranchError: the batch cannot be computed.
        """
        assert self.cut is not None
        runs = (self.whole(inputs), self.cut(inputs))
        for run in runs:
            run()
        times: tuple[list[float], list[float]] = ([], [])
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or not times[1]:
            for run, seen in zip(runs, times, strict=True):
                for _ in range(_SLICE):
                    begun = time.perf_counter()
                    run()
                    seen.append((time.perf_counter() - begun) * 1e3)
        return statistics.median(times[0]), statistics.median(times[1])


@contextmanager
def opened(graph: Path, meaning: str, scratch: Path) -> Iterator[Pair]:
    """Prepare a version as the loader does, and build both of its forms.

    Args:
        graph: the ONNX file, alone.
        meaning: its model.yaml.
        scratch: a folder that is not there.

    Raises:
        AnabranchError: the version is refused.
    """
    version = scratch / "models" / "m" / "1"
    version.mkdir(parents=True)
    shutil.copyfile(graph, version / "model.onnx")
    (version.parent / "model.yaml").write_text(meaning)
    settings = StoreSettings(
        SegmentCache(scratch / "segments", _LIMIT), BuiltGraphs(scratch / "graphs", _LIMIT)
    )
    folder = scan_repository(scratch / "models").models[ModelName("m")]
    prepared = prepare_version(folder, 1, Deployment(), OrtModelRunner(), store=settings)
    with ExitStack() as stack:
        whole = _runs(stack, replace(prepared.model, cut=None), None)
        cut = None
        if prepared.model.cut is not None and prepared.store is not None:
            store = TrialStore(prepared.store.segment)
            source = CutSource.open(prepared.model.cut, store.view)
            cut = _runs(stack, prepared.model, source)
        yield Pair(prepared, whole, cut)


def _runs(
    stack: ExitStack, model: DenseModel, source: CutSource | None
) -> Callable[[Mapping[str, NDArray[Any]]], Run]:
    """Build a model; return what makes a run of a batch."""
    engine = stack.enter_context(closing(build_engine(load_backend("ort-cpu"), model)))
    binding = stack.enter_context(closing(engine.bind()))

    def prepare(inputs: Mapping[str, NDArray[Any]]) -> Run:
        arrays = tuple([inputs[spec.name] for spec in model.inputs])
        axes = model.rows.input_axes
        rows = [a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None]
        count = rows[0] if rows else 1

        def run() -> None:
            stage = stage_request(binding, arrays, count)
            if source is not None:
                assert isinstance(stage, CutStage)
                stage.look_up(source)
            stage.enqueue()
            np.asarray(stage.outputs()[0])

        return run

    return prepare
