"""Weights and rows that deltas bring to graphs: made once, and refused where they do not fit."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx.external_data_helper import convert_model_to_external_data

from anabranch_model_store.deltas.application import DeltaCaches, apply_deltas
from anabranch_model_store.deltas.faults import DeltaCorrupt
from anabranch_model_store.deltas.graph_trials import UpdateTrial
from anabranch_model_store.deltas.origins import LocalOrigin
from anabranch_model_store.deltas.run_cache import RunCache
from anabranch_model_store.deltas.targets import DeltaTarget, RowChanges
from anabranch_model_store.deltas.weight_files import read_weights
from anabranch_model_store.deltas.weight_places import WeightPlaces
from anabranch_model_store.optimized_folders import OptimizeRequest, optimize_folder
from anabranch_publish import Rows, publish_version
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.models import DenseModel
from anabranch_testing.delta_targets import Arrays, DeltaShop, answers, patched, row_changes
from anabranch_testing.written_deltas import DeltaWriter, RowsWritten
from anabranch_wire.errors import InvalidInput, Unavailable

RANK = """rank (int64[N] item, float[N, 10] x) => (float[N, 1] score)
{ i = Gather(items, item) all = Concat <axis: int = 1> (x, i)
  h = Gemm(all, w, b) a = Relu(h) s = MatMul(a, v) score = Sigmoid(s) }"""
SHARED = """rank (int64[N] item, float[N, 4] x) => (float[N, K] scores)
{ i = Gather(items, item) q = Add(i, x) t = Transpose(items) scores = MatMul(q, t) }"""
HALF = """rank (int64[N] item, float16[N, 4] x) => (float16[N, 4] y)
{ i = Gather(items, item) s = Add(i, x) y = Mul(s, w) }"""
ROOT = """rank (float[N, 3] x) => (float[N, 3] y) { m = Mul(x, x) p = Add(m, w) y = Sqrt(p) }"""
BUCKETS = """rank (float[N] age, float[N, 2] x) => (float[N, 2] y)
{ wide = Div(age, width) whole = Floor(wide) id = Cast <to: int = 7> (whole)
  r = Gather(ages, id) y = Add(r, x) }"""
CUT = "optimize: {min_table_bytes: 0}\n"
WHOLE = "optimize: {split: 'off'}\n"


def weights(seed: int = 1) -> Arrays:
    rng = np.random.default_rng(seed)
    shapes = {"items": (50, 6), "w": (16, 8), "b": (8,), "v": (8, 1)}
    return {name: rng.normal(scale=0.3, size=s).astype(np.float32) for name, s in shapes.items()}


def publish(shop: DeltaShop, graph: str, numbers: Arrays, yaml: str) -> DeltaTarget:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    for name, array in numbers.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, shop.folder() / "model.onnx")
    (shop.folder() / "model.yaml").write_text(yaml)
    return shop.target()


def batch(rows: int = 9, seed: int = 5) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        "item": rng.integers(0, 50, rows),
        "x": rng.normal(size=(rows, 10)).astype(np.float32),
    }


def expected(shop: DeltaShop, new: Arrays, inputs: Arrays) -> Arrays:
    """What ONNX Runtime makes of the published graph with other weights."""
    path = shop.root / "expected.onnx"
    patched(shop.folder() / "model.onnx", path, new)
    return OrtModelRunner().run(path, inputs)


def dense(model: DenseModel) -> DenseModel:
    return model if model.cut is None else model.cut.dense


@pytest.fixture
def shop(tmp_path: Path) -> DeltaShop:
    return DeltaShop(tmp_path)


def test_rows_that_only_the_store_has_leave_graphs_alone(shop: DeltaShop) -> None:
    target = publish(shop, RANK, weights(), CUT)

    made, _ = shop.apply(target, rows={"items": [row_changes([3], np.ones((1, 6)))]})

    assert made.model is target.model
    assert made.files is target.graphs
    assert not (shop.root / "cache" / "graphs").exists()
    assert not (shop.root / "cache" / "deltas").exists()


@pytest.mark.parametrize("yaml", [CUT, WHOLE])
def test_new_weights_answer_at_once_and_the_old_graph_stays(shop: DeltaShop, yaml: str) -> None:
    target = publish(shop, RANK, weights(), yaml)
    new = {name: weights(2)[name] for name in ("w", "b", "v")}
    before = answers(target.model, target.segment, [batch()])[0]

    made, _ = shop.apply(target, new)

    found = answers(made.model, target.segment, [batch()])[0]
    np.testing.assert_allclose(found["score"], expected(shop, new, batch())["score"], atol=1e-6)
    assert dense(made.model).optimized
    assert made.files is not None
    assert made.files.weights is not None
    assert sorted(read_weights(made.files.weights)) == ["b", "v", "w"]
    assert target.graphs is not None
    assert made.files.dense == target.graphs.dense
    again = answers(target.model, target.segment, [batch()])[0]
    np.testing.assert_array_equal(again["score"], before["score"])


def test_rows_of_a_table_in_the_graph_are_row_numbers_and_the_last_of_a_key_counts(
    shop: DeltaShop,
) -> None:
    target = publish(shop, RANK, weights(), WHOLE)
    rows = np.arange(24, dtype=np.float32).reshape(4, 6) / 10
    table = weights()["items"].copy()
    table[[7, 0, 49]] = rows[[2, 1, 3]]

    first = row_changes([7, 0, 7], rows[:3])
    made, _ = shop.apply(target, rows={"items": [first, row_changes([49], rows[3:])]})

    inputs = {**batch(), "item": np.array([7, 0, 49, 1, 2, 3, 4, 5, 6])}
    found = answers(made.model, None, [inputs])[0]
    np.testing.assert_array_equal(found["score"], expected(shop, {"items": table}, inputs)["score"])


def test_rows_come_after_all_of_a_weight(shop: DeltaShop) -> None:
    target = publish(shop, RANK, weights(), WHOLE)
    table = weights(2)["items"]
    table.flags.writeable = False  # a delta's arrays are views of its files

    made, _ = shop.apply(target, {"items": table}, {"items": [row_changes([1], np.zeros((1, 6)))]})

    table = table.copy()
    table[1] = 0
    found = answers(made.model, None, [batch()])[0]["score"]
    np.testing.assert_array_equal(found, expected(shop, {"items": table}, batch())["score"])


def test_rows_of_a_table_that_is_in_both_places_reach_the_graph(shop: DeltaShop) -> None:
    table = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
    target = publish(shop, SHARED, {"items": table}, CUT)

    made, target = shop.apply(target, rows={"items": [row_changes([39], np.ones((1, 4)))]})

    assert target.graphs is not None
    assert target.graphs.weights is not None
    table = table.copy()
    table[39] = 1
    np.testing.assert_array_equal(read_weights(target.graphs.weights)["items"], table)
    inputs: Arrays = {"item": np.array([0]), "x": np.zeros((1, 4), np.float32)}
    found = answers(made.model, target.segment, [inputs])[0]["scores"]
    np.testing.assert_allclose(found, table[:1] @ table.T, atol=1e-6)  # row 0 is as it was


def test_weights_of_several_deltas_are_those_of_one(shop: DeltaShop) -> None:
    target = publish(shop, RANK, weights(), CUT)
    new = weights(2)

    _, second = shop.apply(target, {"w": new["w"], "b": weights(9)["b"]})
    one, _ = shop.apply(second, {"b": new["b"], "v": new["v"]})
    other, _ = shop.apply(target, {name: new[name] for name in ("w", "b", "v")})

    assert one.files == other.files
    assert dense(one.model) == dense(other.model)


def test_what_was_made_before_is_found_again(shop: DeltaShop) -> None:
    target = publish(shop, RANK, weights(), CUT)
    made, _ = shop.apply(target, {"b": weights(2)["b"]})
    graphs = shop.root / "cache" / "graphs"
    files = {path: path.stat().st_ino for path in graphs.rglob("*")}

    again, _ = shop.apply(target, {"b": weights(2)["b"]})

    assert dense(again.model) == dense(made.model)
    assert {path: path.stat().st_ino for path in graphs.rglob("*")} == files


def test_rows_that_do_not_fit_are_refused_and_nothing_is_written(shop: DeltaShop) -> None:
    target = publish(shop, RANK, weights(), WHOLE)
    one = np.ones((1, 6))
    for change, words in (
        (row_changes([50], one), "key 50; its keys are row numbers, 0 to 49: rows of a weight ca"),
        (row_changes([-1], one), "key -1"),
        (row_changes([1], one, [2, 3]), "2 deleted rows"),
        (row_changes([1], np.ones((1, 7))), "rows of 7 numbers; expected 6"),
    ):
        with pytest.raises(InvalidInput, match=words):
            shop.apply(target, rows={"items": [change]})
    with pytest.raises(InvalidInput, match="weight 'w' is float64; expected float32"):
        shop.apply(target, {"w": np.zeros((16, 8))})
    with pytest.raises(InvalidInput, match="there is no weight or table 'u'"):
        shop.apply(target, {"u": np.zeros((16, 8), np.float32)})
    assert not (shop.root / "cache" / "deltas").exists()


def test_short_floats_keep_their_type_and_rows_are_rounded_to_it(shop: DeltaShop) -> None:
    rng = np.random.default_rng(4)
    numbers = {"items": rng.normal(size=(9, 4)), "w": rng.normal(size=4)}
    target = publish(shop, HALF, {n: a.astype(np.float16) for n, a in numbers.items()}, WHOLE)
    rows = rng.normal(size=(2, 4)).astype(np.float32)
    inputs = {"item": np.array([2, 8]), "x": np.zeros((2, 4), np.float16)}

    made, _ = shop.apply(target, rows={"items": [row_changes([2, 8], rows)]})

    found = answers(made.model, None, [inputs])[0]["y"]
    np.testing.assert_array_equal(found, rows.astype(np.float16) * numbers["w"].astype(np.float16))
    with pytest.raises(InvalidInput, match="'w' is float32; expected float16"):
        shop.apply(target, {"w": np.ones(4, np.float32)})
    huge = {"items": [row_changes([0], np.full((1, 4), 1e6))]}
    with pytest.raises(DeltaCorrupt, match=r"1000000\.0 is too large for float16"):
        shop.apply(target, rows=huge)
    shop.apply(allowing(target), rows=huge)


def allowing(target: DeltaTarget) -> DeltaTarget:
    """The same, with `deltas.non_finite: allow`."""
    deltas = type(target.deployment.deltas)(non_finite="allow")
    deployment = type(target.deployment)(deltas=deltas)
    return replace(target, deployment=deployment)


def test_a_graph_that_makes_nothing_but_nan_is_refused_unless_that_is_allowed(
    shop: DeltaShop,
) -> None:
    target = publish(shop, ROOT, {"w": np.ones(3, np.float32)}, "")
    below = np.full(3, -1e9, np.float32)

    with pytest.raises(DeltaCorrupt, match="output 'y' is NaN for each of"):
        shop.apply(target, {"w": below})

    made, _ = shop.apply(allowing(target), {"w": below})
    assert np.isnan(answers(made.model, None, [{"x": np.ones((2, 3), np.float32)}])[0]["y"]).all()
    some = np.array([1, 1, -1e9], np.float32)  # other columns have answers
    shop.apply(target, {"w": some})


def test_what_is_not_the_same_when_optimised_is_served_as_it_is(
    shop: DeltaShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UpdateTrial, "are_same", lambda *_: False)
    for yaml in (CUT, WHOLE):
        target = publish(shop, RANK, weights(), yaml)
        new = {"v": weights(2)["v"]}

        made, _ = shop.apply(target, new)

        assert made.note == (
            "workers build it from a graph that is not optimised: its optimised graph answers "
            "differently"
        )
        assert not dense(made.model).optimized
        assert dense(made.model).path.parent.parent == shop.root / "cache" / "graphs"
        found = answers(made.model, target.segment, [batch()])[0]["score"]
        np.testing.assert_allclose(found, expected(shop, new, batch())["score"], atol=1e-6)


def test_a_weight_that_makes_ids_is_brought_to_the_prelude(shop: DeltaShop) -> None:
    ages = np.arange(20, dtype=np.float32).reshape(10, 2)
    target = publish(shop, BUCKETS, {"ages": ages, "width": np.array([10], np.float32)}, CUT)
    place = WeightPlaces.of(target).find("width")
    assert [one.part for one in place.graph] == ["prelude"]

    made, target = shop.apply(target, {"width": np.array([20], np.float32)})
    made, target = shop.apply(target, {"width": np.array([30], np.float32)})

    inputs = {"age": np.array([10, 59, 61], np.float32), "x": np.zeros((3, 2), np.float32)}
    found = answers(made.model, target.segment, [inputs])[0]["y"]
    np.testing.assert_array_equal(found, ages[[0, 1, 2]])


def test_weights_of_the_users_graph_are_brought_there(shop: DeltaShop) -> None:
    graph = """rank (float[N, 40] u, int64[N] item, float[N, 4] x) => (float[N, 1] score)
    { t = Gemm(u, wu, bu) r = Relu(t) i = Gather(items, item)
      all = Concat <axis: int = 1> (r, i, x) h = Gemm(all, w, b) a = Relu(h)
      score = MatMul(a, v) }"""
    rng = np.random.default_rng(6)
    shapes = {
        "wu": (40, 64), "bu": (64,), "items": (60, 6), "w": (74, 16), "b": (16,), "v": (16, 1)
    }  # fmt: skip
    numbers = {n: (rng.normal(size=s) / 8).astype(np.float32) for n, s in shapes.items()}
    target = publish(shop, graph, numbers, f"user_inputs: [u]\n{CUT}")
    if target.model.cut is None or target.model.cut.user is None:
        pytest.skip("nothing is computed once per user on this machine")
    new = {"wu": numbers["wu"] * 2, "w": numbers["w"] * -1}

    only, _ = shop.apply(target, {"wu": new["wu"]})
    made, _ = shop.apply(target, new)

    assert only.model.cut is not None
    assert only.model.cut.dense == target.model.cut.dense
    inputs: Arrays = {
        "u": np.repeat(rng.normal(size=(1, 40)).astype(np.float32), 30, axis=0),
        "item": rng.integers(0, 60, 30),
        "x": rng.normal(size=(30, 4)).astype(np.float32),
    }
    for model, state in ((only.model, {"wu": new["wu"]}), (made.model, new)):
        found = answers(model, target.segment, [inputs])[0]["score"]
        np.testing.assert_allclose(found, expected(shop, state, inputs)["score"], atol=1e-4)


def test_weights_beside_the_graph_are_replaced_too(shop: DeltaShop) -> None:
    publish(shop, RANK, weights(), WHOLE)
    path = shop.folder() / "model.onnx"
    model = onnx.load(path)
    convert_model_to_external_data(model, location="weights/all.bin", size_threshold=1)
    (shop.folder() / "weights").mkdir()
    path.unlink()
    onnx.save(model, path)
    target = shop.target()
    new = {"w": weights(2)["w"]}

    made, _ = shop.apply(target, new, {"items": [row_changes([0], np.zeros((1, 6)))]})

    table = weights()["items"].copy()
    table[0] = 0
    publish(shop, RANK, weights(), WHOLE)
    wanted = expected(shop, {**new, "items": table}, batch())["score"]
    np.testing.assert_array_equal(answers(made.model, None, [batch()])[0]["score"], wanted)


def test_damaged_weights_of_earlier_deltas_are_no_state_to_go_on_from(shop: DeltaShop) -> None:
    _, target = shop.apply(publish(shop, RANK, weights(), CUT), {"b": weights(2)["b"]})
    assert target.graphs is not None
    assert target.graphs.weights is not None
    os.truncate(target.graphs.weights, 40)

    assert target.lost_file is None
    for _ in range(2):  # gone from the second time on
        with pytest.raises(Unavailable, match=target.graphs.weights.name):
            shop.apply(target, {"v": weights(2)["v"]})
        assert target.lost_file == target.graphs.weights


@pytest.mark.parametrize("yaml", [CUT, WHOLE])
def test_deltas_are_not_to_blame_for_a_graph_that_has_gone(shop: DeltaShop, yaml: str) -> None:
    target = publish(shop, RANK, weights(), yaml)
    target = replace(target, identity="sha256:" + "5b" * 32)
    writer = DeltaWriter(target.folder, target.identity)
    writer.write(1, dense={"b": weights(2)["b"]})
    caches = DeltaCaches(shop.root / "cache", RunCache(shop.root / "cache" / "runs", 1 << 30))
    assert target.graphs is not None
    lost = target.graphs.dense
    lost.rename(shop.root / "kept.onnx")

    found = apply_deltas(target, 1, LocalOrigin(), caches)

    assert found.fault is not None
    assert (found.fault.sequence, found.fault.reason) == (1, "unreachable")
    assert lost.name in found.fault.error.message
    (shop.root / "kept.onnx").rename(lost)
    assert apply_deltas(target, 1, LocalOrigin(), caches).target.snapshot.delta == 1


def test_deltas_that_are_tried_together_are_not_to_blame_for_the_one_before(
    shop: DeltaShop,
) -> None:
    target = publish(shop, RANK, weights(), WHOLE)
    target = replace(target, identity="sha256:" + "5b" * 32)
    writer = DeltaWriter(target.folder, target.identity)
    for number, key in enumerate((1, 50, 2, 3), start=1):
        row = np.ones((1, 6), np.float32)
        writer.write(number, RowsWritten("items", [key], row))
    caches = DeltaCaches(shop.root / "cache", RunCache(shop.root / "cache" / "runs", 1 << 30))

    found = apply_deltas(target, 4, LocalOrigin(), caches)

    assert found.target.snapshot.delta == 1
    assert found.fault is not None
    assert found.fault.error.message.startswith("delta 2: table 'items': key 50")


def test_nothing_is_left_behind_while_graphs_are_made(shop: DeltaShop) -> None:
    target = publish(shop, RANK, weights(), CUT)
    with pytest.raises(InvalidInput):
        shop.apply(target, {"v": np.zeros((9, 9), np.float32)})
    shop.apply(target, {"v": weights(2)["v"]})

    cache = shop.root / "cache"
    assert not [path for path in cache.rglob("*") if path.name.startswith(".")]


Step = tuple[Arrays, dict[str, list[RowChanges]]]


@st.composite
def drawn_steps(draw: st.DrawFn) -> list[Step]:
    """Changes as deltas bring them: weights, rows, both or neither."""
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    steps: list[Step] = []
    shapes = {name: array.shape for name, array in weights().items()}
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.sampled_from(sorted(shapes)), unique=True))
        tensors = {n: rng.normal(scale=0.3, size=shapes[n]).astype(np.float32) for n in names}
        rows: dict[str, list[RowChanges]] = {}
        for name in draw(st.lists(st.sampled_from(("items", "w", "v")), unique=True)):
            high, dim = shapes[name]
            keys = draw(st.lists(st.integers(0, high - 1), max_size=6))
            rows[name] = [row_changes(keys, rng.normal(size=(len(keys), dim)))]
        steps.append((tensors, rows))
    return steps


@given(drawn_steps())
@settings(max_examples=15)
def test_whatever_changes_the_graph_is_that_of_a_version_with_these_weights(
    steps: list[Step],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        shop = DeltaShop(Path(root))
        target = publish(shop, RANK, weights(), WHOLE)
        state: dict[str, NDArray[Any]] = weights()
        for tensors, rows in steps:
            made, target = shop.apply(target, tensors, rows)
            state |= tensors
            for name, changes in rows.items():
                state[name] = state[name].copy()
                for change in changes:
                    for key, row in zip(change.keys, change.values, strict=True):
                        state[name][key] = row
            found = answers(made.model, None, [batch()])[0]["score"]
            np.testing.assert_array_equal(found, expected(shop, state, batch())["score"])


LOOKED_UP = """dense (float[N, 2] x, float[N, 4] emb) => (float[N, 1] score)
{ all = Concat <axis: int = 1> (x, emb) s = MatMul(all, w) score = Add(s, b) }"""
LOOKUPS = """
features: [{name: item, side: candidate, type: int64}]
lookups: [{feature: item, table: items, output: {input: emb, columns: [0, 4]}}]
tables: {items: {alias: [item_emb]}}
"""


def test_of_a_graph_beside_its_tables_weights_are_brought_and_rows_left_to_the_store(
    shop: DeltaShop,
) -> None:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {LOOKED_UP}')
    numbers = {"w": np.ones((6, 1), np.float32), "b": np.zeros(1, np.float32)}
    for name, array in numbers.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(made, shop.root / "dense.onnx")
    (shop.root / "model.yaml").write_text(LOOKUPS)
    shop.model_folder.mkdir(parents=True)
    keys = np.array([5, -7, 2**62])
    publish_version(
        shop.model_folder,
        shop.root / "dense.onnx",
        version=1,
        model_yaml=shop.root / "model.yaml",
        tables={"items": Rows(keys, np.ones((3, 4), np.float32))},
    )
    target = shop.target()
    places = WeightPlaces.of(target)
    assert places.find("items") == places.find("item_emb")
    assert (places.find("items").table, places.find("items").graph) == (0, ())

    rows = {"items": [row_changes([5], np.zeros((1, 4)), [-7])]}
    only, _ = shop.apply(target, rows=rows)
    assert only.model is target.model
    found, _ = shop.apply(target, {"b": np.ones(1, np.float32)}, rows)

    inputs: Arrays = {"x": np.ones((2, 2), np.float32), "emb": np.ones((2, 4), np.float32)}
    score = OrtModelRunner(is_optimized=True).run(found.model.path, inputs)["score"]
    np.testing.assert_array_equal(score, [[7], [7]])
    assert found.model.lookups is target.model.lookups
    with pytest.raises(DeltaCorrupt, match="output 'score' is NaN"):
        shop.apply(target, {"b": np.full(1, np.nan, np.float32)})


def test_a_version_that_was_optimised_ahead_takes_weights_by_its_plan(shop: DeltaShop) -> None:
    source = shop.root / "source"
    source.mkdir()
    before = publish(shop, RANK, weights(), CUT)
    (shop.folder() / "model.onnx").rename(source / "model.onnx")
    (shop.folder() / "model.yaml").rename(source / "model.yaml")
    shop.folder().rmdir()
    request = OptimizeRequest(source / "model.onnx", shop.model_folder / "1", source / "model.yaml")
    optimize_folder(request, OrtModelRunner())
    target = shop.target()
    new = {name: weights(2)[name] for name in ("w", "b")}

    made, _ = shop.apply(target, new)
    other, _ = shop.apply(before, new)

    inputs = [batch()]
    found = answers(made.model, target.segment, inputs)[0]["score"]
    np.testing.assert_array_equal(found, answers(other.model, before.segment, inputs)[0]["score"])
    with pytest.raises(InvalidInput, match="there is no weight or table 'q'"):
        WeightPlaces.of(target).find("q")


@pytest.mark.parametrize("split", ["auto", "'off'"])
def test_a_bias_of_a_layer_in_eight_bits_is_brought(shop: DeltaShop, split: str) -> None:
    graph = RANK.replace("float[N, 10] x", "float[N, 26] x")
    rng = np.random.default_rng(8)
    shapes = {"items": (50, 6), "w": (32, 160), "b": (160,), "v": (160, 1)}
    numbers = {n: rng.normal(scale=0.2, size=s).astype(np.float32) for n, s in shapes.items()}
    options = f"optimize: {{dense: int8, min_table_bytes: 0, split: {split}, "
    target = publish(shop, graph, numbers, options + "parity: {max_abs_diff: 0.1}}\n")
    inputs: Arrays = {
        "item": np.arange(9),
        "x": rng.normal(size=(9, 26)).astype(np.float32),
    }
    new = {"b": numbers["b"] + 1}
    with pytest.raises(InvalidInput, match="'w' cannot be updated: a layer holds it in eight bit"):
        shop.apply(target, {"w": numbers["w"]})

    made, _ = shop.apply(target, new)

    found = answers(made.model, target.segment, [inputs])[0]["score"]
    np.testing.assert_allclose(found, expected(shop, new, inputs)["score"], atol=0.1)
    before = answers(target.model, target.segment, [inputs])[0]["score"]
    assert np.abs(np.asarray(found, np.float64) - np.asarray(before, np.float64)).max() > 0.02
