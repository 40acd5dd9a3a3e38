"""Whatever the optimiser trips over: a version that runs is served, whole, and says why."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from anabranch_graph_opt.optimized import Optimized
from anabranch_model_store import cut_parts, cut_versions
from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cut_versions import WholeVersion
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.errors import AnabranchError, InvalidInput, TooLarge, Unavailable, Unsupported
from anabranch_wire.names import ModelName

GRAPH = """
rank (int64[N] item) => (float[N, 4] y) { rows = Gather(items, item) y = Relu(rows) }
"""
FAULTS = [
    RecursionError("maximum recursion depth exceeded"),
    KeyError("value_7"),
    AssertionError(),
    MemoryError(),
    InvalidInput("the graph cannot be normalised"),
    Unsupported("an operator"),
]


@pytest.fixture(scope="module")
def runner() -> OrtModelRunner:
    return OrtModelRunner()


def prepare(root: Path, runner: OrtModelRunner, more: str = "") -> PreparedVersion:
    folder = root / "models" / "m" / "1"
    folder.mkdir(parents=True)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {GRAPH}')
    numbers = np.random.default_rng(1).random((90, 4), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, "items"))
    onnx.save(model, folder / "model.onnx")
    (folder / "model.yaml").write_text("optimize: {min_table_bytes: 0" + more + "}\n")
    settings = StoreSettings(
        SegmentCache(root / "segments", 1 << 30), BuiltGraphs(root / "graphs", 1 << 30)
    )
    listed = scan_repository(root / "models").models[ModelName("m")]
    return prepare_version(listed, 1, read_deployment(listed.path), runner, store=settings)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("place", ["optimize", "cut_model"])
def test_a_fault_of_the_optimiser_leaves_the_version_whole(
    tmp_path: Path,
    runner: OrtModelRunner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
    place: str,
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise fault

    owner = cut_versions if place == "optimize" else cut_parts
    monkeypatch.setattr(owner, place, fail)
    with caplog.at_level(logging.ERROR):
        prepared = prepare(tmp_path, runner)

    assert isinstance(prepared.cut, WholeVersion)
    assert prepared.model.cut is None
    assert prepared.store is None
    assert any("its lookups stay in the graph" in note for note in prepared.notes)
    assert not any(verdict.cut for verdict in prepared.cut.verdicts)
    if place == "optimize" or not isinstance(fault, InvalidInput):
        assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_fault_is_no_difference_that_model_yaml_wants_refused(
    tmp_path: Path, runner: OrtModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Optimized:
        raise ZeroDivisionError

    monkeypatch.setattr(cut_versions, "optimize", fail)

    assert prepare(tmp_path, runner, ", on_difference: refuse").model.cut is None


@pytest.mark.parametrize("error", [TooLarge("no room"), Unavailable("no disk")])
def test_what_is_no_fault_of_the_optimiser_is_told_as_it_is(
    tmp_path: Path, runner: OrtModelRunner, monkeypatch: pytest.MonkeyPatch, error: AnabranchError
) -> None:
    def fail(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(cut_parts, "cut_model", fail)

    with pytest.raises(type(error), match=error.message):
        prepare(tmp_path, runner)
