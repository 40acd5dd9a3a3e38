"""The script of F1 and F2 in its quick form, and what it measures with."""

from pathlib import Path

import numpy as np
import pytest

import rows
from anabranch_testing.benchmark_scripts import run_quick
from anabranch_wire.ranking import RankRequest
from ranking_bodies import as_json, as_message, as_tensors, make_features
from ranking_model import ranking_plan

SCRIPT = Path(__file__).resolve().parents[1] / "ranking.py"


@pytest.mark.slow
def test_the_quick_form_measures_every_row(tmp_path: Path) -> None:
    written = rows.read(run_quick(SCRIPT, tmp_path))

    assert written.quick
    assert [row.id for row in written.rows] == ["F1", "F2", "F2", "F2"]
    assert all(row.value is not None and row.value > 0 for row in written.rows)


def test_requests_have_every_feature_and_are_the_same_at_every_call() -> None:
    plan = ranking_plan()

    features = make_features(3, 20)

    assert len(plan.features) == 30
    names = {
        side: {one.name for one in plan.features if one.side == side}
        for side in ("user", "candidate")
    }
    assert features.user.keys() == names["user"]
    assert features.candidates.keys() == names["candidate"]
    assert any(one.type == "string" and one.side == "candidate" for one in plan.features)
    assert as_json(features) == as_json(make_features(3, 20)) != as_json(make_features(4, 20))
    assert RankRequest.FromString(as_message(features)).candidates.keys() == names["candidate"]


def test_tensors_repeat_the_user_for_every_candidate() -> None:
    body, head_bytes = as_tensors(
        {"age": np.array([[7]], np.int64), "price": np.ones((3, 1), np.float32)}, 3, binary=True
    )

    assert head_bytes is not None
    assert body[head_bytes:] == np.array([7, 7, 7], "<i8").tobytes() + np.ones(3, "<f4").tobytes()
