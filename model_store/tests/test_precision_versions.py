"""Versions with fewer bits, from model.yaml to what is served: layers in int8, rows in f16."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.external_data_helper import convert_model_to_external_data

from anabranch_model_store import calibration
from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cut_trials import CutTrial, open_cut_trial
from anabranch_model_store.cut_versions import CutVersion, WholeVersion
from anabranch_model_store.optimized_folders import OptimizeRequest, optimize_folder
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.reduced_versions import ReducedVersion, UnreducedVersion
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.errors import InvalidInput, Unavailable, Unsupported
from anabranch_wire.names import ModelName

DENSE = """
dense (float[N, 32] x) => (float[N, 1] score)
{ h = Gemm(x, w, b) a = Relu(h) s = MatMul(a, v) score = Sigmoid(s) }
"""
RANK = """
rank (int64[N] item, int64[N] user, float[N, 16] x) => (float[N, 1] score)
{
  i = Gather(items, item)
  u = Gather(users, user)
  all = Concat <axis: int = 1> (x, i, u)
  h = Gemm(all, w, b)
  a = Relu(h)
  s = MatMul(a, v)
  score = Sigmoid(s)
}
"""
INT8 = "optimize: {dense: int8, min_table_bytes: 0, parity: {max_abs_diff: 0.02}}\n"
DYNAMIC = INT8.replace("int8", "int8_dynamic")
WIDE = 160

Batch = dict[str, NDArray[Any]]


def weights(depth: int, seed: int = 1) -> Batch:
    rng = np.random.default_rng(seed)
    shapes = {"w": (depth, WIDE), "b": (WIDE,), "v": (WIDE, 1)}
    return {name: rng.normal(scale=0.2, size=s).astype(np.float32) for name, s in shapes.items()}


def tables(seed: int = 2) -> Batch:
    rng = np.random.default_rng(seed)
    shapes = {"items": (500, 12), "users": (90, 4)}
    return {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}


class Version:
    """A repository with version 1 of one model, and a cache folder."""

    def __init__(self, root: Path) -> None:
        self.models = root / "models"
        self.folder = self.models / "m" / "1"
        self.folder.mkdir(parents=True)
        self.graphs = root / "cache" / "cut"
        self.settings = StoreSettings(
            SegmentCache(root / "cache" / "segments", 1 << 30), BuiltGraphs(self.graphs, 1 << 30)
        )
        self.runner = OrtModelRunner()

    def write(self, graph: str, yaml: str, numbers: Mapping[str, NDArray[Any]]) -> "Version":
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
        for name, array in numbers.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        onnx.save(model, self.folder / "model.onnx")
        (self.folder / "model.yaml").write_text(yaml)
        return self

    def dense(self, yaml: str = INT8) -> "Version":
        return self.write(DENSE, yaml, weights(32))

    def rank(self, yaml: str = INT8) -> "Version":
        return self.write(RANK, yaml, {**weights(32), **tables()})

    def warmup(self, **arrays: NDArray[Any]) -> "Version":
        (self.folder / "warmup").mkdir(exist_ok=True)
        np.savez(self.folder / "warmup" / "a.npz", **arrays)  # type: ignore[arg-type]  # of many types
        return self

    def prepare(self, settings: StoreSettings | None = None, model: str = "m") -> PreparedVersion:
        folder = scan_repository(self.models).models[ModelName(model)]
        return prepare_version(
            folder,
            1,
            read_deployment(folder.path),
            self.runner,
            store=settings or self.settings,
        )

    def original(self, batch: Batch) -> NDArray[np.float32]:
        return self.runner.run(self.folder / "model.onnx", batch)["score"].astype(np.float32)


def scores(prepared: PreparedVersion, batch: Batch) -> NDArray[np.float32]:
    """Compute a batch by what is served."""
    if isinstance(prepared.cut, CutVersion):
        with open_cut_trial(prepared.cut.model, prepared.cut.store.segment) as trial:
            return trial.run(batch)["score"].astype(np.float32)
    return OrtModelRunner().run(prepared.model.path, batch)["score"].astype(np.float32)


def rank_batch(rows: int = 64, seed: int = 9) -> Batch:
    rng = np.random.default_rng(seed)
    return {
        "item": rng.integers(0, 500, rows),
        "user": rng.integers(0, 90, rows),
        "x": rng.random((rows, 16), np.float32),
    }


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path)


def test_a_graph_without_lookups_computes_in_int8(version: Version) -> None:
    prepared = version.dense().prepare()

    assert isinstance(prepared.reduced, ReducedVersion)
    assert isinstance(prepared.cut, WholeVersion)
    assert prepared.model.rows.can_merge
    assert prepared.model.path.is_relative_to(version.graphs)
    assert prepared.weight_bytes < (version.folder / "model.onnx").stat().st_size / 2
    batch = {"x": np.random.default_rng(3).random((64, 32), np.float32)}
    off = np.abs(scores(prepared, batch) - version.original(batch)).max()
    assert 0 < off <= 0.02
    reduction = prepared.reduced.reduction
    assert 0 < reduction.parity.max_abs_diff <= 0.02
    assert reduction.rank_agreement > 0.95
    assert prepared.notes == (reduction.note,)
    assert reduction.note.startswith("1 layer computes in int8: answers differ by up to 0.0")
    assert "of the pairs of rows keep their order" in reduction.note


def test_layers_behind_lookups_compute_in_int8(version: Version) -> None:
    prepared = version.rank().prepare()

    cut = prepared.cut
    assert isinstance(cut, CutVersion)
    assert (cut.layers, len(cut.store.plan.tables)) == (1, 2)
    assert set(cut.store.plan.weights) == {"items", "users", "b", "v"}
    assert prepared.model.rows.can_merge
    batch = rank_batch()
    off = np.abs(scores(prepared, batch) - version.original(batch)).max()
    assert 0 < off <= 0.02
    assert prepared.notes == (cut.note,)
    assert "1 layer computes in int8" in cut.note


def test_one_loud_row_moves_no_other(version: Version) -> None:
    prepared = version.rank().prepare()
    batch = rank_batch()
    before = scores(prepared, batch)
    batch["x"][5] *= 20
    after = scores(prepared, batch)
    others = np.arange(len(before)) != 5
    np.testing.assert_array_equal(after[others], before[others])
    assert after[5] != before[5]


@pytest.mark.parametrize("graph", ["dense", "rank"])
def test_scales_of_the_batch_make_a_version_that_is_never_merged(
    version: Version, graph: str
) -> None:
    getattr(version, graph)(DYNAMIC)
    prepared = version.prepare()
    assert not prepared.model.rows.independent
    assert "takes its scale from the whole batch" in prepared.model.rows.reason
    assert any(note.startswith("requests are neither merged nor cut") for note in prepared.notes)


def test_nobody_can_claim_that_such_rows_are_independent(version: Version) -> None:
    prepared = version.dense(f"row_independent: true\n{DYNAMIC}").prepare()
    assert isinstance(prepared.reduced, ReducedVersion)
    assert not prepared.model.rows.independent


@pytest.mark.parametrize("graph", ["dense", "rank"])
def test_beyond_the_budget_it_computes_in_f32(version: Version, graph: str) -> None:
    getattr(version, graph)(INT8.replace("0.02", "1.0e-6"))
    prepared = version.prepare()
    (note,) = prepared.notes
    assert note.startswith("it computes in f32: in int8 ")
    assert "the budget is 1e-06" in note
    batch = rank_batch() if graph == "rank" else {"x": rank_batch()["x"].repeat(2, axis=1)}
    np.testing.assert_allclose(scores(prepared, batch), version.original(batch), atol=1e-6)
    if graph == "rank":
        assert isinstance(prepared.cut, CutVersion)
        assert prepared.cut.layers == 0
    else:
        assert isinstance(prepared.reduced, UnreducedVersion)


@pytest.mark.parametrize("graph", ["dense", "rank"])
def test_beyond_the_budget_it_is_refused_on_request(version: Version, graph: str) -> None:
    yaml = INT8.replace("0.02", "1.0e-6").replace("dense:", "on_difference: refuse, dense:")
    getattr(version, graph)(yaml)
    with pytest.raises(InvalidInput, match=r"on_difference: refuse: in int8 .*the budget is 1e-06"):
        version.prepare()


def test_a_graph_too_small_to_gain_stays_f32(version: Version) -> None:
    small = {
        name: array[:, :1] if name != "b" else array[:1] for name, array in weights(32).items()
    }
    small["v"] = np.ones((1, 1), np.float32)
    prepared = version.write(DENSE, INT8, small).prepare()
    assert prepared.notes == ("it computes in f32: no layer is large enough to gain by int8",)
    assert prepared.model.path == (version.folder / "model.onnx").resolve()


def test_recorded_requests_set_the_scales(version: Version) -> None:
    rng = np.random.default_rng(4)
    wide = (rng.normal(size=(200, 32)) * 3).astype(np.float32)
    made_up = version.dense().prepare()
    assert "scales are from made-up requests" in made_up.notes[0]

    recorded = version.warmup(x=wide).prepare()

    assert "made-up" not in recorded.notes[0]
    assert recorded.model.path != made_up.model.path
    expected = version.original({"x": wide})
    near = np.abs(scores(recorded, {"x": wide}) - expected).max()
    far = np.abs(scores(made_up, {"x": wide}) - expected).max()
    assert near <= 0.02 < far


def test_what_was_built_is_found_again(version: Version) -> None:
    first = version.dense().prepare()
    written = first.model.path.stat().st_mtime_ns
    again = version.prepare()
    assert again.model.path == first.model.path
    assert again.model.path.stat().st_mtime_ns == written


def test_there_must_be_a_request_to_calibrate_with(version: Version) -> None:
    version.dense()
    (version.models / "m" / "serving.yaml").write_text("warmup: {generate: false}\n")
    (note, *_) = version.prepare().notes
    assert note == (
        "it computes in f32: optimize.dense: int8: there is no request to calibrate with; put "
        "some into warmup/"
    )


def test_int8_needs_a_folder_for_its_graph(version: Version) -> None:
    version.dense()
    without = StoreSettings(version.settings.segments)
    with pytest.raises(Unavailable, match="no folder to keep its graph in"):
        version.prepare(without)


def test_bits_that_only_a_gpu_has_are_refused(version: Version) -> None:
    version.dense(INT8.replace("int8", "f16"))
    with pytest.raises(Unsupported, match=r"optimize.dense: f16 \(for GPU backends; ort-cpu"):
        version.prepare()


def test_tables_beside_the_graph_go_with_layers_in_int8(version: Version) -> None:
    graph = """
    beside (float[N, 16] x, float[N, 16] emb) => (float[N, 1] score)
    { all = Concat <axis: int = 1> (x, emb) h = Gemm(all, w, b) score = MatMul(h, v) }
    """
    yaml = """
    features: [{name: item, side: candidate, type: int64}]
    lookups: [{feature: item, table: items, output: {input: emb, columns: [0, 16]}}]
    optimize: {dense: int8, parity: {max_abs_diff: 0.1}}
    """
    version.write(graph, yaml, weights(32))
    folder = version.folder / "tables"
    folder.mkdir()
    np.save(folder / "items.npy", np.random.default_rng(5).normal(size=(40, 16)).astype("f4"))
    np.save(folder / "items.keys.npy", np.arange(40, dtype=np.int64))

    prepared = version.prepare()

    assert isinstance(prepared.reduced, ReducedVersion)
    assert prepared.model.lookups is not None
    assert prepared.store is not None
    assert prepared.model.path.is_relative_to(version.graphs)


@pytest.mark.parametrize(("rows", "budget"), [("f16", 1e-3), ("bf16", 1e-2), ("int8", 1e-2)])
def test_rows_are_kept_with_fewer_bits(version: Version, rows: str, budget: float) -> None:
    yaml = (
        f"tables: {{items: {{rows: {rows}}}}}\n"
        f"optimize: {{min_table_bytes: 0, parity: {{max_abs_diff: {budget}}}}}\n"
    )
    prepared = version.rank(yaml).prepare()

    cut = prepared.cut
    assert isinstance(cut, CutVersion)
    assert {table.name: table.dtype for table in cut.store.plan.tables} == {
        "items": rows,
        "users": "f32",
    }
    batch = rank_batch()
    off = np.abs(scores(prepared, batch) - version.original(batch)).max()
    assert 0 < off <= budget
    assert prepared.notes == (cut.note,)
    assert cut.note.startswith("rows of items are kept with fewer bits: answers differ by up to")
    assert "of the pairs of rows keep their order" in cut.note


def test_rows_and_layers_have_fewer_bits_together(version: Version) -> None:
    prepared = version.rank(f"tables: {{items: {{rows: f16}}}}\n{INT8}").prepare()
    assert isinstance(prepared.cut, CutVersion)
    assert prepared.cut.note.startswith("1 layer computes in int8, rows of items are kept with")


def test_rows_beyond_the_budget_stay_in_the_graph(version: Version) -> None:
    yaml = (
        "tables: {items: {rows: int8}}\n"
        "optimize: {min_table_bytes: 0, parity: {max_abs_diff: 1.0e-6}}\n"
    )
    prepared = version.rank(yaml).prepare()
    assert isinstance(prepared.cut, WholeVersion)
    assert "the budget is 1e-06" in prepared.cut.note
    assert prepared.model.cut is None


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("items", "min_table_bytes"),
        ("w", "no lookup of the graph reads a table of that name"),
        ("nothing", "no lookup of the graph reads a table of that name"),
    ],
)
def test_rows_of_a_table_that_stays_in_the_graph_cannot_have_fewer_bits(
    version: Version, table: str, reason: str
) -> None:
    yaml = f"tables: {{{table}: {{rows: f16}}}}\noptimize: {{parity: {{}}}}\n"
    version.rank(yaml)
    with pytest.raises(Unsupported, match=rf"tables\['{table}'\].rows: f16: .*{reason}"):
        version.prepare()


ONCE = """
once (int64[N] item, float[N, 64] profile) => (float[N, 1] score)
{
  i = Gather(items, item)
  p = Gemm(profile, deep, b)
  f = Relu(p)
  all = Concat <axis: int = 1> (f, i)
  h = MatMul(all, w)
  a = Relu(h)
  s = MatMul(a, v)
  score = Sigmoid(s)
}
"""


def once() -> Batch:
    rng = np.random.default_rng(6)
    shapes = {
        "items": (500, 32),
        "deep": (64, WIDE),
        "b": (WIDE,),
        "w": (WIDE + 32, 64),
        "v": (64, 1),
    }
    return {name: rng.normal(scale=0.1, size=s).astype(np.float32) for name, s in shapes.items()}


@pytest.mark.parametrize("yaml", [INT8, DYNAMIC], ids=["int8", "int8_dynamic"])
def test_users_are_computed_once_in_int8(
    version: Version, yaml: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CutTrial, "seconds", lambda trial, inputs: 1.0)
    prepared = version.write(ONCE, f"user_inputs: [profile]\n{yaml}", once()).prepare()

    cut = prepared.cut
    assert isinstance(cut, CutVersion)
    assert cut.layers == 2
    assert cut.model.cut is not None
    assert (cut.model.cut.user is not None) == (yaml == INT8)
    assert prepared.model.rows.can_merge == (yaml == INT8)
    rng = np.random.default_rng(7)
    one = rng.random((1, 64), np.float32)
    many = rng.random((40, 64), np.float32)
    for profile in (np.broadcast_to(one, (40, 64)), many):
        batch: Batch = {"item": rng.integers(0, 500, 40), "profile": profile}
        off = np.abs(scores(prepared, batch) - version.original(batch)).max()
        assert 0 < off <= 0.02


def test_weights_that_lie_beside_a_graph_are_quantised(version: Version) -> None:
    version.dense()
    path = version.folder / "model.onnx"
    model = onnx.load(path)
    convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, path)
    prepared = version.prepare()
    assert isinstance(prepared.reduced, ReducedVersion)
    batch = {"x": np.random.default_rng(3).random((64, 32), np.float32)}
    assert 0 < np.abs(scores(prepared, batch) - version.original(batch)).max() <= 0.02


def test_new_weights_beside_a_graph_are_another_graph(version: Version) -> None:
    paths = set()
    for seed in (1, 2):
        version.write(DENSE, INT8, weights(32, seed))
        model = onnx.load(version.folder / "model.onnx")
        convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
        (version.folder / "weights.bin").unlink(missing_ok=True)
        onnx.save(model, version.folder / "model.onnx")
        paths.add(version.prepare().model.path)
    assert len(paths) == 2


def test_a_fault_leaves_a_version_in_f32(
    version: Version, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(source: object) -> object:
        raise RuntimeError("planted")

    monkeypatch.setattr(calibration, "observe", fails)
    prepared = version.dense().prepare()
    assert prepared.notes == (
        "it computes in f32: RuntimeError while it was reduced; the log of the loader says where",
    )
    assert prepared.model.path == (version.folder / "model.onnx").resolve()
    assert "planted" in caplog.text


@pytest.mark.parametrize(("int8_s", "layers"), [(1.0, 2), (1.05, 2), (3.0, 0)])
def test_where_users_are_computed_once_the_faster_form_is_kept(
    version: Version, monkeypatch: pytest.MonkeyPatch, int8_s: float, layers: int
) -> None:
    def seconds(trial: CutTrial, inputs: object) -> float:
        cut = trial._model.cut
        assert cut is not None
        nodes = onnx.load(cut.dense.path).graph.node
        return int8_s if "MatMulInteger" in {node.op_type for node in nodes} else 1.0

    monkeypatch.setattr(CutTrial, "seconds", seconds)
    prepared = version.write(ONCE, f"user_inputs: [profile]\n{INT8}", once()).prepare()

    assert isinstance(prepared.cut, CutVersion)
    assert prepared.cut.layers == layers
    if not layers:
        assert prepared.notes == (
            "it computes in f32: a request of one user takes 3000.00 ms in int8 and 1000.00 ms in "
            "f32, of which more is computed once per user",
        )


STEPS = """
steps (int64[N, 2] ids, float[N, 16] x) => (float[N, 1] score)
<int64[1] flat = {-1}, int64 zero = {0}, int64 two = {2}>
{
  all_ids = Reshape(ids, flat)
  shape = Shape(ids)
  rows = Gather(shape, zero)
  end = Mul(rows, two)
  at = Range(zero, end, two)
  first = Gather(all_ids, at)
  i = Gather(items, first)
  u = Gather(users, first)
  all = Concat <axis: int = 1> (x, i, u)
  h = Gemm(all, w, b)
  a = Relu(h)
  s = MatMul(a, v)
  score = Sigmoid(s)
}
"""
"""Ids are picked out of those of the whole batch by positions in it, which no proof follows."""


@pytest.mark.parametrize("yaml", [INT8, DYNAMIC], ids=["int8", "int8_dynamic"])
def test_rows_that_only_meet_on_the_way_to_lookups_stay_independent_in_int8(
    version: Version, yaml: str
) -> None:
    numbers = {**weights(32), **tables()}
    numbers["items"] = numbers["items"][:90]
    prepared = version.write(STEPS, yaml, numbers).prepare()
    assert isinstance(prepared.cut, CutVersion)
    assert prepared.cut.layers == 1
    assert prepared.model.rows.can_merge == (yaml == INT8)


@pytest.mark.parametrize("graph", ["dense", "rank"])
def test_made_up_rows_are_as_large_as_recorded_ones(version: Version, graph: str) -> None:
    """Rows from 0 to 1 would all be clipped where recorded ones end at 0.04."""
    depth = 32 if graph == "dense" else 16
    numbers = {**weights(32), **({} if graph == "dense" else tables())}
    for name in ("items", "users"):
        if name in numbers:
            numbers[name] /= 100
    numbers["w"] *= 100
    yaml = INT8.replace("0.02", "0.05")
    version.write(DENSE if graph == "dense" else RANK, yaml, numbers)
    rng = np.random.default_rng(8)
    recorded: Batch = {"x": (rng.random((300, depth)) / 25).astype(np.float32)}
    if graph == "rank":
        recorded |= {"item": rng.integers(0, 500, 300), "user": rng.integers(0, 90, 300)}
    version.warmup(**recorded)

    prepared = version.prepare()

    assert "it computes in f32" not in prepared.notes[0]
    off = np.abs(scores(prepared, recorded) - version.original(recorded)).max()
    assert 0 < off <= 0.05


def test_a_folder_optimised_ahead_of_time_computes_in_int8(version: Version) -> None:
    version.rank()
    request = OptimizeRequest(
        version.folder / "model.onnx",
        version.models / "ahead" / "1",
        version.folder / "model.yaml",
    )
    optimize_folder(request, version.runner)

    prepared = version.prepare(model="ahead")

    assert isinstance(prepared.cut, CutVersion)
    assert prepared.model.rows.can_merge
    batch = rank_batch()
    off = np.abs(scores(prepared, batch) - version.original(batch)).max()
    assert 0 < off <= 0.02
