"""What deltas may name, where it is, and why something cannot be updated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from anabranch_model_store.deltas.weight_places import GraphPlace, WeightPlace, WeightPlaces
from anabranch_testing.delta_targets import DeltaShop
from anabranch_wire.errors import InvalidInput

GRAPH = """rank (int64[N] item, int64[N] kind, float[N, 24] x) => (float[N, 1] score)
{ i = Gather(items, item) k = Gather(kinds, kind) all = Concat <axis: int = 1> (x, i, k)
  h = Gemm(all, w, b) a = Relu(h) s = MatMul(a, v) score = Sigmoid(s) }"""
TIED = """rank (int64[N] item, float[N, 4] x) => (float[N, K] scores)
{ i = Gather(items, item) q = Add(i, x) scores = MatMul(q, turned) }"""
SHARED = """rank (int64[N] item, float[N, 4] x) => (float[N, K] scores)
{ i = Gather(items, item) q = Add(i, x) t = Transpose(items) scores = MatMul(q, t) }"""
CUT = "optimize: {min_table_bytes: 0}\n"
WHOLE = "optimize: {split: 'off'}\n"

Arrays = dict[str, NDArray[Any]]


def weights(seed: int = 1, wide: int = 32) -> Arrays:
    rng = np.random.default_rng(seed)
    shapes = {"items": (50, 6), "kinds": (9, 2), "w": (32, wide), "b": (wide,), "v": (wide, 1)}
    return {name: rng.normal(scale=0.3, size=s).astype(np.float32) for name, s in shapes.items()}


def table(seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(40, 4)).astype(np.float32)


def write(shop: DeltaShop, graph: str, numbers: Arrays, yaml: str, version: int = 1) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    for name, array in numbers.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, shop.folder(version) / "model.onnx")
    (shop.folder(version) / "model.yaml").write_text(yaml)


@pytest.fixture
def shop(tmp_path: Path) -> DeltaShop:
    return DeltaShop(tmp_path)


def found(shop: DeltaShop, graph: str, numbers: Arrays, yaml: str) -> WeightPlaces:
    write(shop, graph, numbers, yaml)
    return WeightPlaces.of(shop.target())


def test_of_a_cut_graph_tables_are_in_the_store_and_weights_in_what_is_left(
    shop: DeltaShop,
) -> None:
    places = found(shop, GRAPH, weights(), CUT)

    assert places.find("items") == WeightPlace("items", 0, (), (50, 6), None)
    assert places.find("kinds").table == 1
    assert places.find("w") == WeightPlace(
        "w", None, (GraphPlace("dense", "w", "none"),), (32, 32), np.dtype(np.float32)
    )


def test_of_a_whole_graph_all_floats_are_where_they_were(shop: DeltaShop) -> None:
    places = found(shop, GRAPH, weights(), WHOLE)

    assert set(places.places) == {"items", "kinds", "w", "b", "v"}
    assert places.find("items").table is None
    assert places.find("items").graph == (GraphPlace("dense", "items", "none"),)


def test_a_table_is_found_by_its_other_names(shop: DeltaShop) -> None:
    yaml = "tables: {items: {alias: [item_emb, ItemTower/emb]}}\n"
    for options in (CUT, WHOLE):
        places = found(shop, GRAPH, weights(), yaml + options)
        assert places.find("item_emb") == places.find("items") == places.find("ItemTower/emb")


def test_a_table_that_a_layer_uses_as_well_is_in_both_places(shop: DeltaShop) -> None:
    place = found(shop, SHARED, {"items": table()}, CUT).find("items")

    assert place.table == 0
    assert place.graph == (GraphPlace("dense", "items", "none"),)


@pytest.mark.parametrize("yaml", [CUT, WHOLE])
def test_a_numbered_copy_of_a_table_goes_with_it(shop: DeltaShop, yaml: str) -> None:
    graph = TIED.replace("turned", "val_7")
    copy = np.ascontiguousarray(table().T)
    places = found(shop, graph, {"items": table(), "val_7": copy}, yaml)

    place = places.find("items")
    assert GraphPlace("dense", "val_7", "transpose") in place.graph
    assert (place.table is None) == (yaml == WHOLE)
    assert place.shape == (40, 4)
    np.testing.assert_array_equal(places.array(place), table())


def test_a_weight_that_nothing_uses_is_refused(shop: DeltaShop) -> None:
    places = found(shop, GRAPH, {**weights(), "left": np.ones(3, np.float32)}, CUT)

    with pytest.raises(InvalidInput, match="weight 'left' cannot be updated: nothing uses it"):
        places.find("left")


def test_a_name_that_is_nowhere_is_refused_with_those_that_are(shop: DeltaShop) -> None:
    places = found(shop, GRAPH, weights(), CUT)

    with pytest.raises(InvalidInput, match="there is no weight or table 'itms'; there are 'b', 'i"):
        places.find("itms")


def test_whole_numbers_are_no_weights(shop: DeltaShop) -> None:
    graph = GRAPH.replace("Gather(kinds, kind)", "Gather(kinds, sure)").replace(
        "k = ", "sure = Mod(kind, nine) k = "
    )
    places = found(shop, graph, {**weights(), "nine": np.array(9)}, WHOLE)

    with pytest.raises(InvalidInput, match="'nine' is of int64; weights that can be updated"):
        places.find("nine")


@pytest.mark.parametrize("split", ["auto", "'off'"])
def test_a_layer_in_eight_bits_takes_no_weight_but_a_bias(shop: DeltaShop, split: str) -> None:
    yaml = (
        f"optimize: {{dense: int8, min_table_bytes: 0, split: {split}, "
        "parity: {max_abs_diff: 0.1}}\n"
    )
    places = found(shop, GRAPH, weights(wide=160), yaml)

    with pytest.raises(InvalidInput, match=r"'w' cannot be updated: a layer holds it in eight bit"):
        places.find("w")
    assert places.find("b").graph == (GraphPlace("dense", "b", "none"),)
    assert (places.find("items").table is None) == (split != "auto")


def test_why_graphs_take_none_is_said(shop: DeltaShop) -> None:
    write(shop, GRAPH, weights(), CUT)
    target = replace(shop.target(), graphs=None, graph_note="it came without its original")

    places = WeightPlaces.of(target)

    assert places.find("items").table == 0
    with pytest.raises(InvalidInput, match="'w' cannot be updated: it came without its original"):
        places.find("w")


def test_other_shapes_and_types_are_named(shop: DeltaShop) -> None:
    place = found(shop, GRAPH, weights(), CUT).find("w")

    with pytest.raises(InvalidInput, match=r"weight 'w' is float16; expected float32"):
        place.check_tensor(np.zeros((32, 32), np.float16))
    with pytest.raises(InvalidInput, match=r"'w' has shape \[32, 24\]; expected \[32, 32\]"):
        place.check_tensor(np.zeros((32, 24), np.float32))


def test_rows_of_another_size_and_deletes_are_named(shop: DeltaShop) -> None:
    places = found(shop, GRAPH, weights(), WHOLE)

    with pytest.raises(InvalidInput, match="table 'items': rows of 5 numbers; expected 6"):
        places.find("items").check_rows(5, 0)
    with pytest.raises(InvalidInput, match="table 'items': 2 deleted rows; its keys are row num"):
        places.find("items").check_rows(6, 2)
    with pytest.raises(InvalidInput, match=r"'b' has shape \[32\]; rows can be changed of a tab"):
        places.find("b").check_rows(32, 0)


def test_a_table_that_only_the_store_has_takes_every_float_type(shop: DeltaShop) -> None:
    place = found(shop, GRAPH, weights(), CUT).find("items")

    place.check_tensor(np.zeros((50, 6), np.float16))
    place.check_tensor(np.zeros((50, 6), np.float64))
    with pytest.raises(InvalidInput, match="'items' is int64; expected float32 or float16 or bf"):
        place.check_tensor(np.zeros((50, 6), np.int64))
