"""Versions whose item table fills sequences of users: stand-ins, and the memory that counts."""

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # comes without types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # comes without types
import pytest

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.memory import OutOfRoom
from anabranch_model_store.optimized_folders import OptimizeRequest, optimize_folder
from anabranch_model_store.preparation import PreparedVersion, prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import ModelFolder, VersionFolder
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.serving_yaml import Deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.ranking.plans import SequencePlan
from anabranch_testing.graphs import write_graph
from anabranch_wire.errors import InvalidInput
from anabranch_wire.names import ModelName

ITEMS = 5000
RAGGED = {"max_length": 3, "keep": "last", "pad_to": 3, "padding": 0}
MEANING: dict[str, Any] = {
    "features": [
        {"name": "recent", "side": "user", "type": "int64", "ragged": RAGGED},
        {"name": "brands", "side": "user", "type": "string", "ragged": RAGGED},
        {"name": "item_id", "side": "candidate", "type": "int64"},
    ],
    "user_inputs": ["recent", "brands"],
    "item_tables": {
        "items": {
            "file": "items/0000.parquet",
            "key": "id",
            "sequences": {"brands": {"ids": "recent", "column": "brand"}},
        }
    },
    "ranking": {"id": "item_id", "score": {"output": "y"}, "item_table": "items"},
}
TABLE = ", ".join(["0.5"] * 64)
GRAPH = (
    "g (int64[N, 3] recent, KIND[N, 3] brands, int64[N] item_id) => (float[N] y) "
    f"<float[32, 2] table = {{{TABLE}}}, int64 rows = {{32}}, int64[1] axis = {{1}}> "
    "{ row = Mod(item_id, rows) e = Gather(table, row) "
    "y = ReduceSum <keepdims: int = 0> (e, axis) }"
)


def prepared(
    root: Path, meaning: dict[str, Any], kind: str = "int64", available: int | None = None
) -> PreparedVersion:
    """Prepare a version with many items, whose brands are strings or numbers."""
    return loaded(published(root, meaning, kind), available)


def published(root: Path, meaning: dict[str, Any], kind: str = "int64") -> Path:
    """Write the version; return its folder."""
    path = root / "m" / "1"
    write_graph(path, GRAPH.replace("KIND", kind))
    (path / "items").mkdir()
    # JSON is YAML without anchors.
    (path / "model.yaml").write_text(json.dumps(meaning))
    strings = meaning["features"][1]["type"] == "string"
    brands = [f"brand {at}" for at in range(ITEMS)] if strings else list(range(ITEMS))
    pq.write_table(pa.table({"id": range(ITEMS), "brand": brands}), path / "items/0000.parquet")
    return path


def loaded(path: Path, available: int | None = None) -> PreparedVersion:
    """Prepare a version as a loader does it."""
    cache = path.parent.parent / "cache"
    store = StoreSettings(
        SegmentCache(cache / "segments", 1 << 30),
        BuiltGraphs(cache / "graphs", 1 << 30),
        items=ItemCache(cache / "items", 1 << 30),
    )
    folder = ModelFolder(ModelName("m"), path.parent, {1: VersionFolder(1, path, False)})
    return prepare_version(
        folder, 1, Deployment(), OrtModelRunner(), available_bytes=available, store=store
    )


def with_stand_in(missing: object, **feature: object) -> dict[str, Any]:
    meaning = copy.deepcopy(MEANING)
    meaning["features"][1].update(feature)
    meaning["item_tables"]["items"]["sequences"]["brands"]["missing"] = missing
    return meaning


KNOWN = {"values": ["a", "none"], "unknown": "error"}


def test_a_stand_in_travels_with_the_plan(tmp_path: Path) -> None:
    found = prepared(tmp_path, with_stand_in("none", vocabulary=KNOWN)).ranking

    assert found is not None
    assert found.item_table is not None
    assert found.item_table.columns == {}
    assert found.item_table.sequences == (SequencePlan("brands", "recent", "brands", "none"),)


@pytest.mark.parametrize(
    ("missing", "feature", "kind", "words"),
    [
        ("other", {"vocabulary": KNOWN}, "int64", "missing: 'other' is not in its vocabulary"),
        (2**63, {"type": "int64"}, "int64", f"missing: {2**63}; expected a 64-bit integer"),
        (1e39, {"type": "float32"}, "float", "missing: 1e+39 is beyond float32"),
    ],
)
def test_a_stand_in_that_no_row_could_have_is_refused(
    tmp_path: Path, missing: object, feature: dict[str, object], kind: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        prepared(tmp_path, with_stand_in(missing, **feature), kind)
    assert f"model.yaml: ranking: feature 'brands': {words}" in caught.value.message


def test_an_item_table_counts_as_memory(tmp_path: Path) -> None:
    meaning = with_stand_in("none", vocabulary={**KNOWN, "unknown": 0})
    found = prepared(tmp_path / "first", meaning)
    assert found.ranking is not None
    assert found.ranking.item_table is not None
    items = found.ranking.item_table.bytes
    assert items > ITEMS * 24

    needed = found.weight_bytes + items
    with pytest.raises(OutOfRoom, match=f"the model has {needed} bytes") as caught:
        prepared(tmp_path / "second", meaning, available=needed - 1)
    assert caught.value.tables == items
    prepared(tmp_path / "third", meaning, available=needed)


def test_an_item_table_counts_as_memory_of_an_optimised_version(tmp_path: Path) -> None:
    meaning = with_stand_in("none", vocabulary={**KNOWN, "unknown": 0})
    original = published(tmp_path / "original", meaning)
    path = tmp_path / "optimised" / "m" / "1"
    request = OptimizeRequest(
        original / "model.onnx", path, original / "model.yaml", min_table_bytes=0
    )
    optimize_folder(request, OrtModelRunner())
    found = loaded(path)
    assert found.store is not None
    assert found.ranking is not None
    assert found.ranking.item_table is not None

    needed = found.weight_bytes + found.ranking.item_table.bytes
    with pytest.raises(OutOfRoom) as caught:
        loaded(path, available=needed)  # and its rows
    assert caught.value.tables > found.ranking.item_table.bytes
    loaded(path, available=needed + found.store.memory_bytes)
