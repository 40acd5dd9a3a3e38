"""W7: the layers of the click model in int8 with fixed scales, against f32, in this process.

The version is prepared as a loader does it: scales from recorded requests, answers compared with
the original. Both forms are then run as an executor runs them, by turns.
"""

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

import rows as results
from anabranch_graph_opt.precision.dense_precision import rank_agreement
from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.reduced_versions import ReducedVersion
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.serving_yaml import Deployment
from anabranch_runtime.backends import load_backend
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import DenseModel
from anabranch_wire.names import ModelName
from ctr_mlp import COLUMNS, INPUT, MODEL, OUTPUT, make_rows, write

__all__ = ["precision_rows"]

ROWS: Final = 256
BUDGET: Final = 0.01
"""Largest difference of a score that the version allows."""
_DISTRIBUTIONS: Final = ("anabranch", "onnxruntime", "numpy")
_SLICE: Final = 5
"""Runs of one form before it is the other's turn."""
_SEED: Final = 73
_LOUD: Final = 20.0

Scores = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def precision_rows(folder: Path, rounds: int, seconds: float) -> Iterator[results.Row]:
    """Yield the rows of W7.

    Args:
        folder: a folder that is not there yet.
        rounds: of the comparison.
        seconds: of each round.
    """
    prepared = _prepared(folder)
    what = f"click model in int8, fixed scales, N={ROWS}"
    if not isinstance(prepared.reduced, ReducedVersion):
        yield results.absent("W7", what, "; ".join(prepared.notes), goal=">= 2.5")
        return
    batch = make_rows(ROWS)
    with ExitStack() as stack:
        f32 = _scores(stack, prepared, folder / "models" / MODEL / "1" / "model.onnx")
        int8 = _scores(stack, prepared, prepared.model.path)
        expected, found = f32(batch), int8(batch)
        times = [_compared(f32, int8, batch, seconds) for _ in range(rounds)]
        moved = _moved(int8, batch, found)
    yield results.measured(
        "W7",
        f"{what}: rows/s",
        [whole / reduced for whole, reduced in times],
        goal=">= 2.5",
        yardstick=f"f32 in the same process, {statistics.median([w for w, _ in times]):.2f} ms",
        figures={"ms": statistics.median([reduced for _, reduced in times])},
        distributions=_DISTRIBUTIONS,
    )
    off = float(np.abs(found - expected).max())
    agreement = rank_agreement(expected, found)
    yield results.measured(
        "W7",
        f"{what}: largest difference of a score, as a share of the budget",
        [off / BUDGET] * rounds,
        goal="<= 1",
        yardstick=f"optimize.parity.max_abs_diff {BUDGET}",
        figures={
            "score error": off,
            "% of pairs in order": agreement * 100,
            "Kendall tau": 2 * agreement - 1,
        },
        distributions=_DISTRIBUTIONS,
    )
    independent = 1.0 if prepared.model.rows.can_merge else 0.0
    yield results.measured(
        "W7",
        f"{what}: how far a row that is {_LOUD:.0f} times larger moves the others' scores",
        [moved] * rounds,
        goal="= 0",
        yardstick="the same batch without it",
        unit="of a score",
        figures={"rows proven independent": independent},
        distributions=_DISTRIBUTIONS,
    )


def _prepared(folder: Path) -> PreparedVersion:
    """Prepare the click model with recorded requests, other ones than those it is measured on."""
    material = write(folder, [1])
    version = material.graph.parent
    (version.parent / "model.yaml").write_text(
        f"optimize: {{dense: int8, parity: {{max_abs_diff: {BUDGET}}}}}\n"
    )
    (version / "warmup").mkdir()
    recorded = np.random.default_rng(_SEED).random((ROWS, COLUMNS), np.float32)
    # NumPy's stubs take a keyword of any name for `allow_pickle`.
    np.savez(version / "warmup" / "recorded.npz", **{INPUT: recorded})  # type: ignore[arg-type]  # a name
    shutil.rmtree(folder / "bodies")
    settings = StoreSettings(
        SegmentCache(folder / "segments", 1 << 30), BuiltGraphs(folder / "graphs", 1 << 30)
    )
    model = scan_repository(material.repository).models[ModelName(MODEL)]
    return prepare_version(model, 1, Deployment(), OrtModelRunner(), store=settings)


def _scores(stack: ExitStack, prepared: PreparedVersion, path: Path) -> Scores:
    """Build a graph as an executor does; return what computes a batch by it."""
    model = DenseModel(path, prepared.model.inputs, prepared.model.outputs, prepared.model.rows)
    engine = stack.enter_context(closing(load_backend("ort-cpu").build(model)))
    binding = stack.enter_context(closing(engine.bind()))
    assert [spec.name for spec in model.outputs] == [OUTPUT]

    def compute(batch: NDArray[np.float32]) -> NDArray[np.float32]:
        stage = binding.stage((batch.shape,))
        stage.inputs[0][...] = batch
        stage.enqueue()
        return np.array(stage.outputs()[0], np.float32)

    return compute


def _compared(
    f32: Scores, int8: Scores, batch: NDArray[np.float32], seconds: float
) -> tuple[float, float]:
    """Return the median milliseconds of a batch in f32 and in int8, taken by turns.

    They are those of this thread, which computes alone: what else runs on its core does not count.
    """
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not times[1]:
        for compute, seen in zip((f32, int8), times, strict=True):
            for _ in range(_SLICE):
                begun = time.thread_time()
                compute(batch)
                seen.append((time.thread_time() - begun) * 1e3)
    return statistics.median(times[0]), statistics.median(times[1])


def _moved(int8: Scores, batch: NDArray[np.float32], before: NDArray[np.float32]) -> float:
    """Return how far the scores of other rows move when one row is much larger."""
    louder = batch.copy()
    at = len(batch) // 2
    louder[at] *= _LOUD
    return float(np.abs(np.delete(int8(louder) - before, at, axis=0)).max())
