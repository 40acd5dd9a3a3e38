from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.settings import BatchSettings
from anabranch_runtime.warming import BatchPlan, batch_plan, measured_costs
from anabranch_testing.graphs import scale_model, write_graph
from anabranch_wire.tensors import TensorSpec


def limited_model(folder: Path, most: int) -> DenseModel:
    """y = x, for requests of at most `most` rows."""
    numbers = ", ".join(["0.0"] * most)
    path = write_graph(
        folder,
        "limited (float[N, 1] x) => (float[N, 1] y) "
        f"<float[{most}, 1] places = {{{numbers}}}, int64 zero = {{0}}, int64 one = {{1}}, "
        "int64[1] first = {0}> "
        "{ shape = Shape(x) \n rows = Gather(shape, zero) \n at = Range(zero, rows, one) \n"
        " place = Gather(places, at) \n y = Add(x, place) }",
    )
    return DenseModel(
        path,
        (TensorSpec("x", "FP32", (-1, 1)),),
        (TensorSpec("y", "FP32", (-1, 1)),),
        RowLayout(True, 1, (0,), (0,)),
    )


def plan_for(
    model: DenseModel, rows: int | None, settings: BatchSettings | None = None
) -> BatchPlan:
    engine = OrtCpuBackend().build(model)
    width = model.inputs[0].shape[1]
    requests = [] if rows is None else [((np.zeros((rows, width), np.float32),), rows)]
    costs = measured_costs(model.rows, engine.bind(), requests, Cancellation())
    return batch_plan(settings or BatchSettings(), model.rows, costs)


def test_batches_are_never_larger_than_what_was_seen_to_run(tmp_path: Path) -> None:
    plan = plan_for(limited_model(tmp_path, 6), 2)

    assert plan.mergeable
    assert 1 <= plan.max_rows <= 4


def test_settings_win_over_measuring(tmp_path: Path) -> None:
    model = scale_model(tmp_path)

    assert plan_for(model, 2, BatchSettings(max_rows=7, split_rows=5)) == BatchPlan(True, 7, 5)


@pytest.mark.parametrize("rows", [None, 0])
def test_without_a_row_to_measure_with_batches_stay_small(tmp_path: Path, rows: int | None) -> None:
    assert plan_for(scale_model(tmp_path), rows) == BatchPlan(True, 1, 0)
