"""Lookups of a version's own graph, from the folder to what a server is told of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx.external_data_helper import convert_model_to_external_data

from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.optimizer import optimize
from anabranch_model_store import cut_parts, cut_tables, cut_versions
from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cut_versions import CutVersion, WholeVersion
from anabranch_model_store.memory import OutOfRoom
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import RowLayout
from anabranch_runtime.store import Segment
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.names import ModelName

GRAPH = """
rank (int64[N] item, int64[N, 2] place, float[N, 3] x) => (float[N, 1] p)
<int64[2] flat = {-1, 8}, int64 shift = {1}>
{
  i = Gather(items, item)
  moved = Add(place, shift)
  both = Gather(places, moved)
  b = Reshape(both, flat)
  all = Concat <axis: int = 1> (x, i, b)
  y = MatMul(all, w)
  p = Sigmoid(y)
}
"""
ALL = "optimize: {min_table_bytes: 0}\n"
ITEMS, PLACES = 5000, 50

Weights = Mapping[str, NDArray[Any]]


def weights(seed: int = 1, items: int = ITEMS) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    shapes = {"items": (items, 8), "places": (PLACES, 4), "w": (19, 1)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


class Version:
    """A repository with version 1 of one model, and a cache folder."""

    def __init__(self, root: Path) -> None:
        self.models = root / "models"
        self.folder = self.models / "m" / "1"
        self.folder.mkdir(parents=True)
        self.cache = root / "cache"
        self.settings = StoreSettings(
            SegmentCache(self.cache / "segments", 1 << 30),
            BuiltGraphs(self.cache / "cut", 1 << 30),
        )

    def write(
        self,
        numbers: Weights | None = None,
        yaml: str = ALL,
        *,
        graph: str = GRAPH,
        external: bool = False,
    ) -> "Version":
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
        for name, array in (numbers or weights()).items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        for file in self.folder.iterdir():
            file.unlink()
        if external:
            convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
        onnx.save(model, self.folder / "model.onnx")
        (self.folder / "model.yaml").write_text(yaml)
        return self

    def prepare(self, runner: OrtModelRunner, **more: Any) -> PreparedVersion:
        folder = scan_repository(self.models).models[ModelName("m")]
        return prepare_version(
            folder, 1, read_deployment(folder.path), runner, store=self.settings, **more
        )


@pytest.fixture(scope="module")
def runner() -> OrtModelRunner:
    return OrtModelRunner()


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path)


def cut_of(prepared: PreparedVersion) -> CutVersion:
    assert isinstance(prepared.cut, CutVersion)
    assert prepared.model.cut is not None
    return prepared.cut


def graphs_of(prepared: PreparedVersion) -> Path:
    assert prepared.model.cut is not None
    return prepared.model.cut.dense.path.parent


def segment_of(prepared: PreparedVersion) -> Path:
    assert prepared.store is not None
    return prepared.store.segment


def check_whole(prepared: PreparedVersion, words: str) -> WholeVersion:
    """Check that a version is served as it was published, and says why."""
    assert isinstance(prepared.cut, WholeVersion)
    assert (prepared.model.cut, prepared.store) == (None, None)
    assert all(words in verdict.reason for verdict in prepared.cut.verdicts)
    assert len(prepared.cut.verdicts) == 2
    return prepared.cut


# --- what is cut ----------------------------------------------------------------------------------


def test_lookups_of_a_graph_become_a_plan_rows_and_a_small_graph(
    version: Version, runner: OrtModelRunner
) -> None:
    numbers = weights()
    prepared = version.write(numbers).prepare(runner)

    made = cut_of(prepared)
    assert prepared.notes == ()
    assert [(v.table, v.cut) for v in made.verdicts] == [("items", True), ("places", True)]
    assert made.parity.ok
    assert made.parity.cases > 10
    assert made.parity.refused >= 4  # ids beyond both ends of both tables
    assert made.parity.max_abs_diff <= 1e-5
    store = prepared.store
    assert store is not None
    assert [(t.name, t.rows, t.dim, t.row_type) for t in Segment.open(store.segment).tables] == [
        (t.name, t.rows, t.dim, t.dtype) for t in store.plan.tables
    ]
    assert {t.name for t in store.plan.tables} == {"items", "places"}
    assert prepared.model.path == (version.folder / "model.onnx").resolve()
    assert prepared.model.rows == RowLayout(True, 1, (0, 0, 0), (0,))
    assert prepared.weight_bytes < 10_000 < numbers["items"].nbytes
    assert store.memory_bytes > numbers["items"].nbytes
    assert [set(example) for example in prepared.examples] == [{"item", "place", "x"}] * 2
    (rows,) = {spec.name for spec in prepared.model.cut.dense.inputs} - {"x"}  # type: ignore[union-attr]
    example, dense = prepared.examples[1], prepared.graph_examples[1]
    assert set(dense) == {"x", rows}
    item, place = (np.asarray(example[name], np.int64) for name in ("item", "place"))
    expected = [numbers["items"][item]]
    expected += [numbers["places"][place[:, column] + 1] for column in (0, 1)]
    found = {tuple(row) for row in np.sort(dense[rows], axis=1).tolist()}
    assert found == {tuple(row) for row in np.sort(np.concatenate(expected, 1), axis=1).tolist()}


def test_small_tables_stay_and_that_needs_no_note(version: Version, runner: OrtModelRunner) -> None:
    prepared = version.write(yaml="").prepare(runner)
    by_table = {verdict.table: verdict for verdict in cut_of(prepared).verdicts}
    assert by_table["items"].cut
    assert "min_table_bytes (65536)" in by_table["places"].reason

    prepared = version.write(yaml="optimize: {min_table_bytes: 1000000}\n").prepare(runner)

    check_whole(prepared, "min_table_bytes (1000000)")
    assert prepared.notes == ()


def test_splitting_may_be_turned_off(version: Version, runner: OrtModelRunner) -> None:
    prepared = version.write(yaml="optimize: {split: off}\n").prepare(runner)

    assert (prepared.cut, prepared.store, prepared.model.cut) == (None, None, None)
    assert prepared.notes == ()
    assert not version.cache.exists()


def test_a_table_of_short_floats_is_kept_as_it_is(version: Version, runner: OrtModelRunner) -> None:
    numbers = weights()
    numbers["items"] = numbers["items"].astype(np.float16)
    graph = GRAPH.replace(
        "i = Gather(items, item)", "half = Gather(items, item)\n i = Cast <to: int = 1> (half)"
    )

    prepared = version.write(numbers, graph=graph).prepare(runner)

    cut_of(prepared)
    store = prepared.store
    assert store is not None
    assert {(t.name, t.dtype) for t in store.plan.tables} == {("items", "f16"), ("places", "f32")}
    assert {buffer.dtype for buffer in store.plan.buffers} == {"f16", "f32"}


# --- the cache ------------------------------------------------------------------------------------


def refuse(*_: object) -> None:
    raise AssertionError("made again")


def test_a_version_that_was_cut_before_is_found_in_the_cache(
    version: Version, runner: OrtModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = version.write().prepare(runner)
    monkeypatch.setattr(cut_parts, "write_graphs", refuse)
    monkeypatch.setattr(cut_tables, "write_table", refuse)

    again = version.prepare(runner)

    assert (graphs_of(again), segment_of(again)) == (graphs_of(first), segment_of(first))
    assert cut_of(again).parity == cut_of(first).parity


def test_other_options_make_other_graphs_and_rows(version: Version, runner: OrtModelRunner) -> None:
    made = [version.write(yaml=yaml).prepare(runner) for yaml in (ALL, "")]

    assert len({graphs_of(each) for each in made}) == 2
    assert len({segment_of(each) for each in made}) == 2


@pytest.mark.parametrize("external", [False, True])
def test_new_weights_in_the_same_graph_are_not_those_in_the_cache(
    version: Version, external: bool
) -> None:
    # Weights beside the file leave the file itself as it was. A runner knows files by their names.
    made = [
        version.write(weights(seed), external=external).prepare(OrtModelRunner()) for seed in (1, 2)
    ]

    assert len({graphs_of(each) for each in made}) == 2
    assert len({segment_of(each) for each in made}) == 2
    for seed, prepared in zip((1, 2), made, strict=True):
        assert cut_of(prepared).parity.ok
        dense = ir.load(graphs_of(prepared) / "dense.onnx").graph.initializers["w"].const_value
        assert dense is not None
        np.testing.assert_array_equal(dense.numpy(), weights(seed)["w"])


@pytest.mark.parametrize("what", ["graph", "rows"])
def test_what_is_damaged_in_the_cache_is_made_anew(
    version: Version, runner: OrtModelRunner, what: str
) -> None:
    prepared = version.write().prepare(runner)
    path = graphs_of(prepared) / "dense.onnx" if what == "graph" else segment_of(prepared)
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])

    again = version.prepare(runner)

    cut_of(again)
    assert path.read_bytes() == whole


def test_a_table_beside_the_graph_is_read_there(version: Version, runner: OrtModelRunner) -> None:
    inside = version.write().prepare(runner)
    beside = version.write(external=True).prepare(runner)

    for prepared in (inside, beside):
        cut_of(prepared)
    assert (version.folder / "weights.bin").stat().st_size > ITEMS * 8 * 4
    for number in (0, 1):
        one, two = (
            Segment.open(segment_of(prepared)).tables[number] for prepared in (inside, beside)
        )
        assert one == two
    assert segment_of(inside).stat().st_size == segment_of(beside).stat().st_size


# --- what answers otherwise -----------------------------------------------------------------------


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the optimizer get one weight of the dense graph wrong."""
    sound = optimize

    def unsound(*arguments: Any) -> Optimized:
        made = sound(*arguments)
        value = made.dense.graph.initializers["w"]
        assert value.const_value is not None
        wrong = value.const_value.numpy().copy()
        wrong[0, 0] += 0.01
        value.const_value = ir.tensor(wrong, name="w")
        return replace(made, structure_hash=made.structure_hash[:-4] + "bad0")

    return lambda: monkeypatch.setattr(cut_versions, "optimize", unsound)


def test_a_version_that_answers_otherwise_is_served_whole(
    version: Version, runner: OrtModelRunner, plant: Callable[[], None]
) -> None:
    plant()
    prepared = version.write().prepare(runner)

    whole = check_whole(prepared, "without its lookups it answers differently")
    assert whole.note.startswith("its lookups stay in the graph: without its lookups")
    assert "the budget is 1e-05" in whole.note
    assert prepared.notes == (whole.note,)
    assert prepared.weight_bytes > ITEMS * 8 * 4


def test_or_it_is_refused_where_model_yaml_wants_that(
    version: Version, runner: OrtModelRunner, plant: Callable[[], None]
) -> None:
    plant()
    version.write(yaml="optimize: {min_table_bytes: 0, on_difference: refuse}\n")

    with pytest.raises(InvalidInput, match=r"^optimize\.on_difference: refuse: without its"):
        version.prepare(runner)


def test_a_wider_budget_lets_it_pass(
    version: Version, runner: OrtModelRunner, plant: Callable[[], None]
) -> None:
    plant()
    yaml = "optimize: {min_table_bytes: 0, parity: {max_abs_diff: 0.1, min_rank_agreement: 0}}\n"

    made = cut_of(version.write(yaml=yaml).prepare(runner))

    assert 1e-5 < made.parity.max_abs_diff < 0.1


def test_a_table_that_the_store_cannot_hold_stays_in_the_graph(
    version: Version, runner: OrtModelRunner
) -> None:
    numbers = weights()
    numbers["items"][4321, 3] = np.nan

    prepared = version.write(numbers).prepare(runner)

    whole = check_whole(prepared, "table 'items': row 4321")
    assert "its lookups stay in the graph: table 'items': row 4321" in whole.note
    assert "column 3: found nan" in whole.note


# --- memory ---------------------------------------------------------------------------------------


def test_a_version_that_is_cut_is_weighed_as_what_is_left_of_it(
    version: Version, runner: OrtModelRunner
) -> None:
    version.write(external=True)
    prepared = version.prepare(runner)
    assert prepared.store is not None
    needed = prepared.weight_bytes + prepared.store.memory_bytes

    # Headers and rounding up to pages are not known before.
    cut_of(version.prepare(runner, available_bytes=needed))
    with pytest.raises(OutOfRoom, match=f"the machine has {needed - 65536} left") as caught:
        version.prepare(runner, available_bytes=needed - 65536)
    assert caught.value.tables > 0.8 * prepared.store.memory_bytes


def test_what_does_not_fit_is_refused_before_rows_are_written(
    version: Version, runner: OrtModelRunner
) -> None:
    version.write(weights(items=20 * ITEMS), external=True)

    with pytest.raises(TooLarge, match="the machine has 100000 left"):
        version.prepare(runner, available_bytes=100_000)

    assert not (version.cache / "segments").exists()


def test_a_version_that_stays_whole_is_weighed_whole(
    version: Version, runner: OrtModelRunner
) -> None:
    version.write(yaml="optimize: {min_table_bytes: 100000000}\n", external=True)

    with pytest.raises(TooLarge, match="the machine has 100000 left"):
        version.prepare(runner, available_bytes=100_000)


# --- rows -----------------------------------------------------------------------------------------

STEPS = """
steps (int64[N, 2] ids, float[N, 3] x) => (float[N, 1] p)
<int64[1] flat = {-1}, int64 zero = {0}, int64 one = {1}, int64 two = {2}, float[14, 1] v = {
  0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}>
{
  all_ids = Reshape(ids, flat)
  shape = Shape(ids)
  rows = Gather(shape, zero)
  end = Mul(rows, two)
  at = Range(zero, end, two)
  first = Gather(all_ids, at)
  i = Gather(items, first)
  c = Gather(places, first)
  all = Concat <axis: int = 1> (x, i, c)
  TAIL
}
"""
"""Ids are picked out of those of the whole batch by positions in it, which no proof follows."""


def steps(tail: str) -> str:
    text = STEPS.replace("TAIL", tail).replace("float[14, 1] v", "float[15, 1] v")
    return text.replace("0.6, 0.7}>", "0.6, 0.7, 0.8}>")


def short(items: int = PLACES) -> dict[str, NDArray[Any]]:
    made = weights(items=items)
    del made["w"]
    return made


def test_rows_that_only_meet_on_the_way_to_lookups_are_independent_without_them(
    version: Version, runner: OrtModelRunner
) -> None:
    graph = steps("y = MatMul(all, v)\n p = Sigmoid(y)")
    whole = version.write(short(), "optimize: {split: off}\n", graph=graph).prepare(runner)
    assert not whole.model.rows.independent

    prepared = version.write(short(), graph=graph).prepare(runner)

    assert [verdict.cut for verdict in cut_of(prepared).verdicts] == [True, True]
    assert prepared.model.rows == RowLayout(True, 1, (0, 0), (0,))
    assert prepared.notes == ()


@pytest.mark.parametrize(
    "yaml", [ALL, ALL + "row_independent: false\n"], ids=["mixed in the rest", "said by model.yaml"]
)
def test_rows_stay_dependent_where_the_rest_or_model_yaml_says_so(
    version: Version, runner: OrtModelRunner, yaml: str
) -> None:
    mixed = "p0 = MatMul(all, v)\n p = Softmax <axis: int = 0> (p0)"
    apart = "p = MatMul(all, v)"
    graph = steps(mixed if yaml == ALL else apart)

    prepared = version.write(short(), yaml, graph=graph).prepare(runner)

    assert isinstance(prepared.cut, CutVersion)
    assert not prepared.model.rows.independent
    assert len(prepared.notes) == 1
    assert prepared.notes[0].startswith("requests are neither merged nor cut")
