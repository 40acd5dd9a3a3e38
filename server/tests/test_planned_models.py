"""Plans made the models that backends build, or refused where they contradict themselves."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_server.processes.planned_models import dense_model, examples, snapshot
from anabranch_server.processes.plans import ArrayPlan, VersionPlan
from anabranch_testing.workers import scale_plan
from anabranch_wire.errors import Corrupt, Internal
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec

replace = msgspec.structs.replace


@pytest.fixture
def plan(tmp_path: Path) -> VersionPlan:
    return scale_plan(tmp_path, 7, delta=3)


def test_a_version_is_what_its_plan_says(plan: VersionPlan) -> None:
    assert snapshot(plan) == Snapshot("m", 7, 3)
    assert dense_model(plan) == DenseModel(
        Path(plan.path),
        (TensorSpec("x", "FP32", (-1, 1)),),
        (TensorSpec("y", "FP32", (-1, 1)),),
        RowLayout(True, 1, (0,), (0,)),
    )
    (example,) = examples(plan)
    assert example["x"].tolist() == [[1.0], [1.0]]
    assert example["x"].dtype == np.float32


def test_a_plan_that_contradicts_itself_is_our_fault(plan: VersionPlan) -> None:
    tensor = replace(plan.inputs[0], datatype="FP31")
    with pytest.raises(Internal, match="FP31"):
        dense_model(replace(plan, inputs=(tensor,)))
    with pytest.raises(Internal, match="min_rows"):
        dense_model(replace(plan, rows=replace(plan.rows, min_rows=0)))
    with pytest.raises(Corrupt):
        examples(replace(plan, examples=({"x": ArrayPlan("FP32", (3,), b"1234")},)))
