"""A version whose lookups were cut, told by a loader and built by a worker: nothing gets lost."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings, prepared_store
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.store_trials import TrialStore
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.cut_engines import build_engine
from anabranch_runtime.cut_sources import CutSource
from anabranch_runtime.cut_stages import CutStage
from anabranch_runtime.cut_staging import stage_request
from anabranch_runtime.models import DenseModel
from anabranch_runtime.store import Segment
from anabranch_server.loader.building import GraphBuilder
from anabranch_server.loader.measuring import batch_costs
from anabranch_server.loader.version_plans import version_plan
from anabranch_server.processes.loader_messages import Found
from anabranch_server.processes.planned_models import dense_model
from anabranch_server.processes.plans import SplitPlan, VersionPlan
from anabranch_testing.cut_graphs import USER_NAMES, CutRequest, cut_graphs, cut_plan, cut_store
from anabranch_testing.graphs import write_graph
from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import ModelName

GRAPH = """
rank (int64[N] item, int64[N] code, float[N, 3] x) => (float[N, 1] p)
<int64 ten = {10}>
{
  i = Gather(items, item)
  small = Mod(code, ten)
  c = Gather(codes, small)
  all = Concat <axis: int = 1> (x, i, c)
  y = MatMul(all, w)
  p = Sigmoid(y)
}
"""


@pytest.fixture
def prepared(tmp_path: Path) -> PreparedVersion:
    """A version that needs a prelude; one small table stays where it is."""
    folder = tmp_path / "models" / "m" / "1"
    path = write_graph(folder, GRAPH)
    model = onnx.load(path)
    rng = np.random.default_rng(1)
    for name, shape in (("items", (500, 4)), ("codes", (10, 2)), ("w", (9, 1))):
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    (folder / "model.yaml").write_text("optimize: {min_table_bytes: 0}\n")
    found = scan_repository(tmp_path / "models").models[ModelName("m")]
    cache = tmp_path / "cache"
    settings = StoreSettings(
        SegmentCache(cache / "segments", 1 << 30), BuiltGraphs(cache / "cut", 1 << 30)
    )
    runner = OrtModelRunner()
    made = prepare_version(found, 1, read_deployment(found.path), runner, store=settings)
    return GraphBuilder(cache).build(made, runner)


def through_msgpack(prepared: PreparedVersion) -> VersionPlan:
    """Return what a supervisor gets of a loader, and a worker of a supervisor."""
    found = Found(3, version_plan(prepared, batch_costs(prepared)), {})
    data = msgspec.msgpack.encode(found)
    return msgspec.msgpack.decode(data, type=Found).version


def answer(
    model: DenseModel, segment: Path, inputs: Mapping[str, NDArray[np.generic]], rows: int
) -> NDArray[np.generic]:
    """Compute a request as an executor does."""
    assert model.cut is not None
    source = CutSource.open(model.cut, TrialStore(segment).view)
    with closing(build_engine(OrtCpuBackend(), model)) as engine:
        binding = engine.bind()
        arrays = tuple([inputs[spec.name] for spec in model.inputs])
        stage = stage_request(binding, arrays, rows)
        assert isinstance(stage, CutStage)
        stage.look_up(source)
        stage.enqueue()
        found = stage.outputs()[0].copy()
        binding.close()
    return found


def test_a_worker_builds_what_a_loader_found(prepared: PreparedVersion) -> None:
    plan = through_msgpack(prepared)

    model = dense_model(plan)

    assert model.cut is not None
    assert model.cut.prelude is not None
    assert plan.store is not None
    assert plan.split == SplitPlan(2, 0, plan.split.max_abs_diff if plan.split else 1.0)
    assert [rows for rows, _ in plan.costs][:2] == [1, 2]
    rng = np.random.default_rng(2)
    inputs: dict[str, NDArray[np.generic]] = {
        "item": rng.integers(-500, 500, 20),
        "code": rng.integers(0, 10**9, 20),
        "x": rng.standard_normal((20, 3)).astype(np.float32),
    }
    found = answer(model, Path(plan.store.segment), inputs, 20)
    expected = OrtModelRunner().run(prepared.model.path, inputs)["p"]
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=1e-6
    )


def test_every_file_that_workers_read_is_named(prepared: PreparedVersion) -> None:
    # What is named is kept in the cache for as long as somebody may be told of it.
    plan = through_msgpack(prepared)
    assert plan.cut is not None
    assert plan.cut.prelude is not None
    assert plan.store is not None

    assert plan.cut.dense.optimized
    assert {plan.cut.dense.path, plan.cut.prelude.path, plan.store.segment} < set(plan.files)
    assert all(Path(file).is_file() for file in plan.files)


def test_memory_is_that_of_the_graphs_and_of_tables_once(prepared: PreparedVersion) -> None:
    plan = through_msgpack(prepared)

    assert plan.store is not None
    assert plan.weight_bytes < 4000
    assert plan.store.memory_bytes > 500 * 4 * 4


def test_a_user_side_crosses_with_the_inputs_that_hold_a_user(
    prepared: PreparedVersion, tmp_path: Path
) -> None:
    cut_store(tmp_path / "store")
    segment = tmp_path / "store" / "tables.seg"
    store = prepared_store(segment, Segment.open(segment), cut_plan(), ())
    request = CutRequest.random(np.random.default_rng(4), 5, one_user=True)
    own = replace(
        prepared,
        model=cut_graphs(tmp_path / "graphs"),
        store=store,
        user_inputs=USER_NAMES,
        examples=(CutRequest.random(np.random.default_rng(3), 3).named(),),
    )

    plan = through_msgpack(own)

    assert plan.cut is not None
    assert plan.cut.user is not None
    assert plan.cut.user_inputs == USER_NAMES
    assert plan.cut.user.path in plan.files
    model = dense_model(plan)
    named = dict(zip([spec.name for spec in model.inputs], request.admitted(), strict=True))
    np.testing.assert_array_equal(answer(model, segment, named, 5), request.answer())
    torn = msgspec.structs.replace(plan, cut=msgspec.structs.replace(plan.cut, user=None))
    with pytest.raises(InvalidInput, match="a user graph is named"):
        dense_model(torn)


def test_a_version_that_stays_whole_says_so(tmp_path: Path, prepared: PreparedVersion) -> None:
    yaml = tmp_path / "models" / "m" / "1" / "model.yaml"
    yaml.write_text("optimize: {min_table_bytes: 1000000}\n")
    found = scan_repository(tmp_path / "models").models[ModelName("m")]
    settings = StoreSettings(
        SegmentCache(tmp_path / "s", 1 << 30), BuiltGraphs(tmp_path / "g", 1 << 30)
    )
    whole = prepare_version(found, 1, read_deployment(found.path), OrtModelRunner(), store=settings)

    plan = through_msgpack(whole)

    assert plan.split == SplitPlan(0, 2, 0.0)
    assert (plan.cut, plan.store) == (None, None)
    assert dense_model(plan).cut is None
