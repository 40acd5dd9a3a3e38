"""Which versions share an engine, and which are one and the same: values alone."""

from pathlib import Path

import msgspec
import pytest

from anabranch_runtime.ranking.plans import RankingPlan
from anabranch_server.processes.plans import (
    CutPlan,
    GenerationPlan,
    PartPlan,
    RunPlan,
    UpdatePlan,
    VersionPlan,
)
from anabranch_server.worker.likeness import is_same, shares_graph
from anabranch_testing.marked_rows import marked_plan

ROWS = GenerationPlan(1, 1, 3)
RANKING = RankingPlan(
    features=(), tensors=(), id="item", heads=("low",), weights=(1.0,), formula="head"
)


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> VersionPlan:
    return marked_plan(Path(tmp_path_factory.mktemp("version")), 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"delta": 3, "step": 7, "event_time": 1.0, "published": 2.0},
        {"runs": (RunPlan("1", 1, 3),), "increment": RunPlan("1", 1, 3)},
        {"updates": UpdatePlan("dense.onnx")},
        {"ranking": RANKING},
        {"costs": ((1, 0.5),), "examples": (), "warm_rounds": 9, "notes": ("slow",)},
    ],
)
def test_what_changes_no_graph_shares_the_engine(
    version: VersionPlan, changed: dict[str, object]
) -> None:
    assert shares_graph(version, msgspec.structs.replace(version, **changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"path": "other.onnx"},
        {"version": 2},
        {"identity": "other"},
        {"optimized": True},
        {"cut": CutPlan(PartPlan("dense.onnx", (), ()), None, None, ())},
        {"store": None},
    ],
)
def test_what_is_built_from_something_else_has_its_own(
    version: VersionPlan, changed: dict[str, object]
) -> None:
    assert not shares_graph(version, msgspec.structs.replace(version, **changed))


def test_only_what_answers_alike_is_the_same(version: VersionPlan) -> None:
    assert is_same(version, ROWS, version, GenerationPlan(1, 1, 3))
    assert not is_same(version, ROWS, version, GenerationPlan(1, 1, 4))
    assert not is_same(version, ROWS, msgspec.structs.replace(version, path="other.onnx"), ROWS)
    for changed in ({"delta": 1}, {"step": 1}, {"event_time": 1.0}, {"ranking": RANKING}):
        assert not is_same(version, ROWS, msgspec.structs.replace(version, **changed), ROWS)
    again = msgspec.structs.replace(version, published=1.0, increment=RunPlan("1", 1, 3))
    assert is_same(version, ROWS, again, ROWS)
