"""Batches of a version are measured with requests in every form that its warm-up may have."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch_model_store.preparation import prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.serving_yaml import Deployment
from anabranch_publish import publish_version
from anabranch_publish.tables import Rows
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_server.loader.measuring import batch_costs
from anabranch_testing.graphs import write_graph
from anabranch_wire.names import ModelName

GRAPH = """
m (float[N, 2] x, float[N, 2] user, float[N, 4] item) => (float[N, 8] y)
{ y = Concat <axis: int = 1> (x, user, item) }
"""
FEATURES = """
features:
  - {name: id, side: user, type: int64}
  - {name: clicks, side: user, type: int64, ragged: {max_length: 8}}
lookups:
  - {feature: id, table: t, output: {input: user, columns: [0, 2]}}
  - {feature: id, table: t, output: {input: item, columns: [0, 2]}}
  - {feature: clicks, table: t, combiner: mean, output: {input: item, columns: [2, 4]}}
"""


@pytest.mark.parametrize("users", ["none", "[x]", "[x, id]", "[clicks]"])
@pytest.mark.parametrize("rows", [1, 3])
def test_one_user_of_all_rows_may_be_in_a_request_that_warms(
    tmp_path: Path, users: str, rows: int
) -> None:
    graph = write_graph(tmp_path / "graph", GRAPH)
    meaning = tmp_path / "model.yaml"
    meaning.write_text(f"user_inputs: {users}\n{FEATURES}")
    arrays: dict[str, Any] = {
        "x": np.ones((rows, 2), np.float32),
        "id": np.array([[7]]),
        "clicks": np.array([1, 2, 99]),
        "clicks.lengths": np.array([3], np.int32),
    }
    np.savez(tmp_path / "one.npz", **arrays)
    (tmp_path / "models").mkdir()
    table = Rows(np.arange(10), np.ones((10, 2), np.float32))
    publish_version(
        tmp_path / "models" / "m", graph, model_yaml=meaning, tables={"t": table},
        warmup=[tmp_path / "one.npz"],
    )  # fmt: skip
    prepared = prepare_version(
        scan_repository(tmp_path / "models").models[ModelName("m")], 1, Deployment(),
        OrtModelRunner(), store=StoreSettings(SegmentCache(tmp_path / "cache", 1 << 30)),
    )  # fmt: skip

    costs = batch_costs(prepared)

    assert [cost.rows for cost in costs] == sorted({cost.rows for cost in costs})
    assert all(cost.seconds > 0 for cost in costs)
